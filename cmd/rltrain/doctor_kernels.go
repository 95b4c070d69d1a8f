package main

import (
	"fmt"
	"math"
	"strings"

	"graft/cmd/internal/launch"
	"graft/kernels"
	"graft/kernels/cpu"
	"graft/kernels/cpu/vec"
	"graft/kernels/quant"
	"graft/kernels/ref"
	"graft/kernels/rng"
	"graft/model"
	"graft/rl"
	"graft/weights"
)

// rig is a backend under test.
type rig struct {
	name string
	be   kernels.Backend
}

// rigs lists the backends: every instruction set of the processor, and last the reference.
func rigs() (list []rig, done func()) {
	for _, k := range vec.Supported() {
		list = append(list, rig{k.String(), cpu.New(cpu.Options{Threads: 2, Kernels: vec.For(k)})})
	}
	list = append(list, rig{"reference", ref.New()})
	return list, func() {
		for _, r := range list {
			r.be.Close()
		}
	}
}

// compareRigs runs f on every backend. The fast ones must agree bit for bit, and with the reference
// within tolerance relative to the largest value.
func compareRigs(what string, tolerance float64, f func(be kernels.Backend) ([]float32, error)) (worst float64, err error) {
	list, done := rigs()
	defer done()
	var first []float32
	for i, r := range list {
		got, err := f(r.be)
		if err != nil {
			return 0, fmt.Errorf("%s with %s: %w", what, r.name, err)
		}
		if i == 0 {
			first = got
			continue
		}
		largest := 0.0
		for j, v := range got {
			largest = max(largest, math.Abs(float64(v)))
			if i < len(list)-1 && math.Float32bits(v) != math.Float32bits(first[j]) {
				return 0, fmt.Errorf("%s: value %d is %g with %s but %g with %s: they must be equal", what, j, first[j], list[0].name, v, r.name)
			}
		}
		if i < len(list)-1 {
			continue
		}
		for j, v := range got {
			off := math.Abs(float64(v)-float64(first[j])) / max(largest, 1e-30)
			if !(off <= tolerance) {
				return 0, fmt.Errorf("%s: value %d is %g with %s, the reference says %g", what, j, first[j], list[0].name, v)
			}
			worst = max(worst, off)
		}
	}
	return worst, nil
}

// contracts lists the precision contracts.
func contracts() []kernels.Precision {
	return []kernels.Precision{kernels.PrecisionF32, kernels.PrecisionInt8}
}

// checkFormats multiplies by a matrix of every weight format under both contracts.
func checkFormats() finding {
	f := finding{What: "kernels", Needed: true, OK: true, Fix: "this build computes wrong numbers on this processor: run with -tags noasm, and please report the processor's model with this line"}
	worst := 0.0
	for _, precision := range contracts() {
		for _, format := range quant.Formats() {
			off, err := compareRigs(fmt.Sprintf("MatMul %s, precision %s", format, precision), 1e-4,
				func(be kernels.Backend) ([]float32, error) { return multiply(be, format, precision) })
			if err != nil {
				f.OK, f.Detail = false, err.Error()
				return f
			}
			worst = max(worst, off)
		}
	}
	f.Detail = fmt.Sprintf("%d weight formats, precision f32 and int8 (auto is %s): %s agree bit for bit, off the reference by %.0e of the largest value", len(quant.Formats()), autoPrecision(), strings.Join(isas(), ", "), worst)
	return f
}

// multiply is 3 rows by a [40, 512] matrix of the format, all random but always the same.
func multiply(be kernels.Backend, format quant.Format, precision kernels.Precision) ([]float32, error) {
	const rows, out, in = 3, 40, 512
	src := rng.New(1, "doctor")
	values := make([]float32, out*in)
	for i := range values {
		values[i] = float32(src.Uniform(0, uint32(i), 0, 0) - 0.5)
	}
	raw := make([]byte, format.Bytes(out*in))
	quant.Encode(raw, format, values)
	arena := weights.NewArena(be, 0)
	defer arena.Close()
	w, err := arena.Weight("weights", format, out, in)
	if err != nil {
		return nil, err
	}
	w.Precision = precision
	be.Pack(w, 0, raw)
	x, err := arena.Tensor("x", kernels.F32, rows, in)
	if err != nil {
		return nil, err
	}
	y, err := arena.Tensor("y", kernels.F32, rows, out)
	if err != nil {
		return nil, err
	}
	for i := range values[:rows*in] {
		values[i] = float32(src.Uniform(1, uint32(i), 0, 0) - 0.5)
	}
	bytes := make([]byte, 4*rows*in)
	quant.Encode(bytes, quant.F32, values[:rows*in])
	be.Upload(x, bytes)
	be.MatMul(x, []kernels.Product{{Y: y, W: w}})
	return download(be, y)
}

func download(be kernels.Backend, t kernels.Tensor) ([]float32, error) {
	raw := make([]byte, 4*t.Rows*t.Cols)
	be.Download(raw, t)
	out := make([]float32, t.Rows*t.Cols)
	quant.Decode(out, quant.F32, raw)
	return out, be.Sync()
}

// checkModel scores a group of two rollouts with the embedded model and an adapter, forward and
// backward.
func checkModel() finding {
	f := finding{What: "model", Needed: true, OK: true, Fix: "this build computes wrong numbers on this processor: run with -tags noasm, and please report the processor's model with this line"}
	worst := 0.0
	for _, precision := range contracts() {
		most := 2e-3
		if precision == kernels.PrecisionInt8 {
			most = 2e-2 // what float32 adds to a value near the middle of two codes decides for one, of 63
		}
		off, err := compareRigs(fmt.Sprintf("the embedded model, precision %s", precision), most,
			func(be kernels.Backend) ([]float32, error) { return trainTiny(be, precision) })
		if err != nil {
			f.OK, f.Detail = false, err.Error()
			return f
		}
		worst = max(worst, off)
	}
	f.Detail = fmt.Sprintf("precision f32 and int8: log-probs and adapter gradients of the embedded model agree bit for bit, off the reference by %.0e", worst)
	return f
}

// fixedPool hands out the pages 0, 1, 2, …
type fixedPool struct{}

func (fixedPool) Take(n int) ([]int32, error) {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out, nil
}

func (fixedPool) Give([]int32) {}

func trainTiny(be kernels.Backend, precision kernels.Precision) ([]float32, error) {
	source, err := launch.Open(launch.Request{Model: launch.Tiny, Precision: precision.String()})
	if err != nil {
		return nil, err
	}
	defer source.Files.Close()
	loaded, err := source.Load(be, 0, false)
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	m := loaded.Model
	ad, err := m.NewAdapter(launch.AdapterID, weights.AdapterConfig{R: 4, Alpha: 8, TargetModules: []string{"all-linear"}}, 1, true)
	if err != nil {
		return nil, err
	}
	var batch []rl.Rollout
	for i, n := range []int{9, 5} {
		r := rl.Rollout{PromptLen: 20, Sample: i}
		for t := range 20 + n {
			r.Tokens = append(r.Tokens, int32((t*7+max(0, t-19)*(i+3))%m.Config.Vocab))
		}
		batch = append(batch, r)
	}
	size := rl.SizeOf(batch)
	size.Keep, size.Threads = model.KeepAll, 2
	pages, err := model.NewPages(m.Arena, &m.Config, size.Pages)
	if err != nil {
		return nil, err
	}
	p := &rl.Policy{Model: m, Adapter: ad, Pages: pages, Pool: fixedPool{}, InvT: 1}
	if err := p.Allocate(size); err != nil {
		return nil, err
	}
	logp, _, err := p.Score(batch)
	if err != nil {
		return nil, err
	}
	grad := rl.TokenGrad{DLogP: make([]float32, len(logp))}
	for i := range grad.DLogP {
		grad.DLogP[i] = 1
	}
	if err := p.Accumulate(grad); err != nil {
		return nil, err
	}
	out := logp
	for _, pair := range ad.Pairs() { // B is zero, so only its gradients are not
		out = append(out, model.Floats(be, pair.DB)...)
	}
	return out, nil
}
