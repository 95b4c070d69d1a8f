package rl

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"graft/kernels"
	"graft/weights"
)

// AdamWOptions are the optimizer's constants, named as in transformers' TrainingArguments.
type AdamWOptions struct {
	Beta1       float64 // adam_beta1
	Beta2       float64 // adam_beta2
	Eps         float64 // adam_epsilon
	WeightDecay float64 // weight_decay: of parameters with Decay only
	MaxGradNorm float64 // max_grad_norm; 0: no clipping
}

// DefaultAdamW are TRL's values.
func DefaultAdamW() AdamWOptions {
	return AdamWOptions{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, MaxGradNorm: 1}
}

// Validate says which constant is out of range.
func (o AdamWOptions) Validate() error {
	switch {
	case !(o.Beta1 >= 0 && o.Beta1 < 1):
		return fmt.Errorf("rl: adam_beta1 is %g, must be in [0, 1)", o.Beta1)
	case !(o.Beta2 >= 0 && o.Beta2 < 1):
		return fmt.Errorf("rl: adam_beta2 is %g, must be in [0, 1)", o.Beta2)
	case !(o.Eps > 0) || math.IsInf(o.Eps, 0):
		return fmt.Errorf("rl: adam_epsilon is %g, must be positive", o.Eps)
	case !(o.WeightDecay >= 0) || math.IsInf(o.WeightDecay, 0):
		return fmt.Errorf("rl: weight_decay is %g, must not be negative", o.WeightDecay)
	case !(o.MaxGradNorm >= 0) || math.IsInf(o.MaxGradNorm, 0):
		return fmt.Errorf("rl: max_grad_norm is %g, must not be negative (0 does not clip)", o.MaxGradNorm)
	}
	return nil
}

// AdamW moves parameters in place (Loshchilov & Hutter 2019, in torch's order). It owns both
// moments of every parameter, in the arena, and the number of steps taken.
type AdamW struct {
	options AdamWOptions
	params  []weights.Param
	m, v    []kernels.Tensor // [1, n] each
	t       int              // steps taken
	arena   *weights.Arena
	mem     *kernels.Memory
}

// AdamWBytes is what NewAdamW will take from the arena for parameters of these lengths.
func AdamWBytes(lengths ...int) int64 {
	cut := weights.NewCarver(nil)
	for _, n := range lengths {
		cut.Tensor(kernels.F32, 1, n)
		cut.Tensor(kernels.F32, 1, n)
	}
	return cut.Bytes()
}

// NewAdamW allocates zero moments for the parameters in the span "moments".
func NewAdamW(arena *weights.Arena, params []weights.Param, o AdamWOptions) (*AdamW, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if len(params) == 0 {
		return nil, fmt.Errorf("rl: nothing to train: neither an adapter with gradients nor a base loaded for full fine-tuning")
	}
	lengths := make([]int, len(params))
	for i, p := range params {
		lengths[i] = p.Value.Len()
	}
	mem, err := arena.Alloc("moments", AdamWBytes(lengths...))
	if err != nil {
		return nil, err
	}
	a := &AdamW{options: o, params: params, arena: arena, mem: mem}
	cut := weights.NewCarver(mem)
	for _, n := range lengths {
		a.m = append(a.m, cut.Tensor(kernels.F32, 1, n))
		a.v = append(a.v, cut.Tensor(kernels.F32, 1, n))
	}
	return a, nil
}

// Free returns the moments.
func (a *AdamW) Free() {
	a.arena.Free(a.mem)
	a.mem = nil
}

// Steps is the number of steps taken.
func (a *AdamW) Steps() int { return a.t }

// GradNorm is the Euclidean norm of all gradients together.
func (a *AdamW) GradNorm() float64 {
	var sum float64
	for _, p := range a.params {
		sum += a.arena.Backend().SumSquares(p.Grad)
	}
	return math.Sqrt(sum)
}

// Step moves every parameter once at learning rate lr and returns the gradients' global norm before
// clipping. Gradients above MaxGradNorm are scaled by max/(norm+1e-6), as torch's clip_grad_norm_
// does; they stay as they are in memory. A norm that is not finite is an error, and nothing moves.
func (a *AdamW) Step(lr float64) (norm float64, err error) {
	if !(lr >= 0) || math.IsInf(lr, 0) {
		return 0, fmt.Errorf("rl: the learning rate of step %d is %g", a.t+1, lr)
	}
	be := a.arena.Backend()
	if err := be.Sync(); err != nil {
		return 0, err
	}
	norm = a.GradNorm()
	if err := be.Sync(); err != nil {
		return 0, err
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, fmt.Errorf("rl: the gradient norm of step %d is %g, and nothing was changed: %w", a.t+1, norm, ErrDiverged)
	}
	scale := 1.0
	if a.options.MaxGradNorm > 0 {
		scale = min(1, a.options.MaxGradNorm/(norm+1e-6))
	}
	a.t++
	for i, p := range a.params {
		s := kernels.AdamWStep{LR: lr, Beta1: a.options.Beta1, Beta2: a.options.Beta2, Eps: a.options.Eps, GradScale: scale, T: a.t}
		if p.Decay {
			s.WeightDecay = a.options.WeightDecay
		}
		be.AdamW(p.Value, p.Grad, a.m[i], a.v[i], s)
	}
	return norm, be.Sync()
}

// adamMagic begins an exported state; its last byte is the layout's number.
const adamMagic = "GRAFTAW\x01"

// Export writes the number of steps and both moments: magic, steps, number of parameters, their
// lengths (uint64, little endian), then m and v of each as the backend holds them. Another backend
// may hold matrices in another order: a state belongs to the backend that wrote it.
func (a *AdamW) Export(w io.Writer) error {
	if _, err := w.Write(a.header()); err != nil {
		return fmt.Errorf("rl: writing moments: %w", err)
	}
	return a.eachPart(func(t kernels.Tensor, buf []byte) error {
		a.arena.Backend().Download(buf, t)
		if err := a.arena.Backend().Sync(); err != nil {
			return err
		}
		if _, err := w.Write(buf); err != nil {
			return fmt.Errorf("rl: writing moments: %w", err)
		}
		return nil
	})
}

// Import restores what Export wrote for parameters of the same lengths. A state of other lengths
// changes nothing; one that ends early leaves an optimizer that must not be used.
func (a *AdamW) Import(r io.Reader) error {
	want := a.header()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		return fmt.Errorf("rl: reading moments: %w", err)
	}
	steps := binary.LittleEndian.Uint64(got[len(adamMagic):])
	copy(want[len(adamMagic):], got[len(adamMagic):len(adamMagic)+8])
	switch {
	case string(got[:len(adamMagic)]) != adamMagic:
		return fmt.Errorf("rl: these are not the moments of an AdamW")
	case string(got) != string(want):
		return fmt.Errorf("rl: the moments belong to parameters of other sizes than this run trains; use the same adapter rank and target modules")
	case steps > math.MaxInt32:
		return fmt.Errorf("rl: the moments claim %d steps", steps)
	}
	err := a.eachPart(func(t kernels.Tensor, buf []byte) error {
		if _, err := io.ReadFull(r, buf); err != nil {
			return fmt.Errorf("rl: reading moments: %w", err)
		}
		a.arena.Backend().Upload(t, buf)
		return a.arena.Backend().Sync()
	})
	if err == nil {
		a.t = int(steps)
	}
	return err
}

func (a *AdamW) header() []byte {
	out := []byte(adamMagic)
	out = binary.LittleEndian.AppendUint64(out, uint64(a.t))
	out = binary.LittleEndian.AppendUint64(out, uint64(len(a.params)))
	for _, p := range a.params {
		out = binary.LittleEndian.AppendUint64(out, uint64(p.Value.Len()))
	}
	return out
}

// eachPart visits the moments in pieces of at most a megabyte.
func (a *AdamW) eachPart(f func(t kernels.Tensor, buf []byte) error) error {
	const piece = 1 << 18 // floats
	buf := make([]byte, 4*piece)
	for i := range a.params {
		for _, t := range []kernels.Tensor{a.m[i], a.v[i]} {
			for from := 0; from < t.Cols; from += piece {
				to := min(from+piece, t.Cols)
				if err := f(t.Columns(from, to), buf[:4*(to-from)]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
