package launch

import (
	"fmt"
	"strings"

	"graft/kernels"
	"graft/model"
)

// Auto leaves the precision contract to the adapter or checkpoint, and where there is none, to Use.
const Auto = "auto"

// Use is what a model is loaded for. It decides the contract where nothing else does.
type Use int

const (
	// Training is grpo, dpo, sft and the demo.
	Training Use = iota
	// Answering is eval, chat, serve and export.
	Answering
	// Scoring is score: an instrument, whose numbers are compared with other programs'.
	Scoring
)

// Precision is the contract of --precision auto where no adapter or checkpoint names one: int8, which
// trains as well and is faster (measured: docs/decisions.md), and for Scoring what other programs compute.
func (u Use) Precision() kernels.Precision {
	if u == Scoring {
		return kernels.PrecisionF32
	}
	return kernels.PrecisionInt8
}

// PrecisionError is a --precision that cannot be had: wrong usage.
type PrecisionError struct{ text string }

func (e *PrecisionError) Error() string { return e.text }

func precisionError(format string, args ...any) error {
	return &PrecisionError{fmt.Sprintf(format, args...)}
}

// Settle decides the contract that the source is loaded under, for use with the adapters in some
// files or folders: what was asked for, or with Auto (or "") what the adapters were trained under,
// or else the default of the use. What a person should know about it is added to s.Warnings.
//
// Training goes on only under the contract that an adapter was trained under. Other uses may ask for
// another one; then the answers are not those that training saw.
func (s *Source) Settle(asked string, use Use, adapters ...string) error {
	recorded := map[kernels.Precision][]string{}
	for _, path := range adapters {
		p, err := model.AdapterPrecision(path)
		if err != nil {
			return err
		}
		if p != nil {
			recorded[*p] = append(recorded[*p], path)
		}
	}
	p, err := s.wanted(asked, use, recorded)
	if err != nil {
		return err
	}
	s.Files.SetPrecision(p)
	got := s.Files.Precision()
	for _, other := range []kernels.Precision{kernels.PrecisionF32, kernels.PrecisionInt8} {
		if paths := recorded[other]; paths != nil && other != got {
			s.Warnings = append(s.Warnings, fmt.Sprintf("%s was trained under precision %s and computes under %s here%s: results differ from those of its training as with another quantization",
				strings.Join(paths, ", "), other, got, map[bool]string{false: ", since no matrix of " + s.Model + " is quantized"}[s.Files.Quantized()]))
		}
	}
	return nil
}

// wanted is the contract before it is known whether the model has quantized matrices at all.
func (s *Source) wanted(asked string, use Use, recorded map[kernels.Precision][]string) (kernels.Precision, error) {
	f32, int8 := recorded[kernels.PrecisionF32], recorded[kernels.PrecisionInt8]
	if asked == "" || asked == Auto {
		switch {
		case f32 != nil && int8 != nil:
			return 0, precisionError("the adapters were trained under different contracts: %s under f32, %s under int8; one model computes under one. Serve them apart, or give --precision f32 or int8 to have all of them under that one",
				strings.Join(f32, ", "), strings.Join(int8, ", "))
		case f32 != nil:
			return kernels.PrecisionF32, nil
		case int8 != nil:
			return kernels.PrecisionInt8, nil
		}
		return use.Precision(), nil
	}
	p, ok := kernels.ParsePrecision(asked)
	if !ok {
		return 0, precisionError("--precision %s: want auto, f32 or int8", asked)
	}
	if !s.Files.Quantized() {
		if p == kernels.PrecisionInt8 {
			return 0, precisionError("--precision int8 has no effect on %s: none of its matrices is quantized, so both contracts are one; leave it out, or take a quantized GGUF", s.Model)
		}
		return p, nil
	}
	if use == Training {
		for other, paths := range recorded {
			if other != p {
				return 0, precisionError("--precision %s: the adapter %s was trained under %s, and goes on only under that; leave --precision out, or train a new adapter", p, strings.Join(paths, ", "), other)
			}
		}
	}
	return p, nil
}
