package kernelstest

import (
	"math"
	"math/rand/v2"
	"testing"

	"graft/kernels"
	"graft/kernels/ref"
)

// matrix64 is a value of the exact forward.
type matrix64 = ref.Matrix[float64]

// variable is an input that a gradient is taken of.
type variable struct {
	name  string
	value matrix64
	grad  matrix64 // what ref's backward says, in float64
}

// derivative is an operation with everything needed to differentiate it three ways. Values are
// float32 numbers, so that the backend starts from the same ones.
type derivative struct {
	name  string
	terms int
	vars  []*variable
	// loss is Σ c·output for fixed random c, in float64 throughout.
	loss func() float64
	// backward fills the variables' grads from the same c, in float64 throughout.
	backward func()
	// backend computes the gradients on a backend and returns them in the order of vars.
	backend func(l *Lab) [][]float32
}

// RunGradients compares the backend's gradients of every operation with ref's, and ref's, at float64
// storage, with central differences of ref's exact forward.
func RunGradients(t *testing.T, b kernels.Backend) { runGradients(goTest{t}, b) }

func runGradients(t tester, b kernels.Backend) {
	for _, build := range derivatives() {
		r := rand.New(rand.NewPCG(7, 7))
		d := build(r)
		t.Run(d.name, func(t tester) {
			d.backward()
			for _, v := range d.vars {
				d.differences(t, r, v)
			}
			l := NewLab(t, b, 1)
			got := d.backend(l)
			l.Check()
			for i, v := range d.vars {
				want := make([]float32, len(v.grad.V))
				for j, g := range v.grad.V {
					want[j] = float32(g)
				}
				near(t, "the exact gradient", []report{{name: "d" + v.name, values: want}},
					[]report{{name: "d" + v.name, values: got[i]}}, check{terms: d.terms, slack: 64})
			}
		})
	}
}

// differences checks up to 24 elements of a gradient. With a step h of 1e-4 a central difference is
// off by h²·f‴/6 and by 1e-16·f/h: about 1e-8 and 1e-11 of values near 1.
func (d *derivative) differences(t tester, r *rand.Rand, v *variable) {
	const h = 1e-4
	size := 1e-3
	for _, g := range v.grad.V {
		size = math.Max(size, math.Abs(g))
	}
	for range 24 {
		i := r.IntN(len(v.value.V))
		x := v.value.V[i]
		v.value.V[i] = x + h
		up := d.loss()
		v.value.V[i] = x - h
		down := d.loss()
		v.value.V[i] = x
		if want, got := (up-down)/(2*h), v.grad.V[i]; !(math.Abs(got-want) <= 1e-6*size) {
			t.Errorf("%s: ref has d%s[%d] = %v, the difference is %v", d.name, v.name, i, got, want)
			t.FailNow()
		}
	}
}

// random64 is a matrix of float32 numbers.
func random64(r *rand.Rand, rows, cols int, std float64) matrix64 {
	m := ref.NewMatrix[float64](rows, cols)
	for i := range m.V {
		m.V[i] = float64(float32(std * r.NormFloat64()))
	}
	return m
}

func zero64(m matrix64) matrix64 { return ref.NewMatrix[float64](m.Rows, m.Cols) }

func clone64(m matrix64) matrix64 {
	c := zero64(m)
	copy(c.V, m.V)
	return c
}

// newVariable is a variable of random values.
func newVariable(r *rand.Rand, name string, rows, cols int, std float64) *variable {
	v := random64(r, rows, cols, std)
	return &variable{name: name, value: v, grad: zero64(v)}
}

// sumOf is Σ c·y.
func sumOf(c, y matrix64) float64 {
	var sum float64
	for i, v := range y.V {
		sum += c.V[i] * v
	}
	return sum
}

func narrow(m matrix64) []float32 {
	v := make([]float32, len(m.V))
	for i, x := range m.V {
		v[i] = float32(x)
	}
	return v
}

// tensor64 puts an exact matrix on the backend.
func (l *Lab) tensor64(m matrix64) kernels.Tensor { return l.Floats(m.Rows, m.Cols, narrow(m)) }

func (l *Lab) weight64(m matrix64) kernels.Weight { return l.FloatWeight(m.Rows, m.Cols, narrow(m)) }

// zeroGradient is a packed F32 gradient of zeros.
func (l *Lab) zeroGradient(m matrix64) kernels.Weight {
	w := l.weight64(zero64(m))
	l.Writable(w.Flat())
	return w
}

// like is an output of a matrix's shape.
func (l *Lab) like(m matrix64) kernels.Tensor { return l.Output(m.Rows, m.Cols) }

// zeros is an output of a matrix's shape that operations add to.
func (l *Lab) zeros(m matrix64) kernels.Tensor { return l.Writable(l.tensor64(zero64(m))) }
