package kernelstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"graft/kernels"
	"graft/kernels/ref"
)

// recorder is a tester that keeps what it is told. FailNow unwinds to the Run around it, and once a
// failure says what was sought, further parts are skipped.
type recorder struct {
	failures *[]string
	cleanups *[]func()
	sought   string
	name     string
}

// found tells whether a failure says what was sought.
func (r recorder) found() bool {
	return slices.ContainsFunc(*r.failures, func(s string) bool { return strings.Contains(s, r.sought) })
}

// stopped is what FailNow panics with.
type stopped struct{}

func (r recorder) Helper()          {}
func (r recorder) Cleanup(f func()) { *r.cleanups = append(*r.cleanups, f) }
func (r recorder) FailNow()         { panic(stopped{}) }
func (r recorder) Errorf(format string, args ...any) {
	*r.failures = append(*r.failures, r.name+": "+fmt.Sprintf(format, args...))
}

func (r recorder) Run(name string, f func(tester)) bool {
	if r.found() {
		return false
	}
	before := len(*r.failures)
	defer func() {
		if e := recover(); e != nil && e != (stopped{}) {
			panic(e)
		}
	}()
	r.name += "/" + name
	f(r)
	return len(*r.failures) == before
}

// failuresOf runs one section, or the gradients, on a backend until a failure says what is sought.
func failuresOf(b kernels.Backend, name, sought string) []string {
	r := recorder{new([]string), new([]func()), sought, ""}
	run := runGradients
	for _, s := range sections() {
		if s.name == name {
			run = s.run
		}
	}
	r.Run(name, func(t tester) { run(t, b) })
	for _, f := range slices.Backward(*r.cleanups) {
		f()
	}
	return *r.failures
}

// broken is ref with one operation replaced.
type broken struct {
	*ref.Backend
	calls int

	matMul         func(x kernels.Tensor, p []kernels.Product)
	matMulBackward func(dx, x kernels.Tensor, g []kernels.ProductGrad, keep bool)
	norm           func(y, inv, x, w kernels.Tensor, eps float32, keep bool)
	normBackward   func(dx, dw, dy, x, w, inv kernels.Tensor, keep bool)
	embed          func(y kernels.Tensor, w kernels.Weight, ids kernels.Tensor, scale float32)
	embedBackward  func(dw kernels.Weight, dy, ids kernels.Tensor, scale float32)
	scatter        func(y, x, rows kernels.Tensor)
	rope           func(x kernels.Tensor, r kernels.Rope, positions kernels.Tensor, inverse bool)
	writeKV        func(kv kernels.KV, k, v, rows, slots kernels.Tensor)
	attention      func(a *kernels.AttentionArgs)
	attnBackward   func(a *kernels.AttentionArgs, g *kernels.AttentionGrad)
	glu            func(y, gate, up kernels.Tensor, act kernels.Activation)
	gluBackward    func(dgate, dup, dy, gate, up kernels.Tensor, act kernels.Activation)
	logProbs       func(a *kernels.LogProbsArgs)
	headBackward   func(a *kernels.LogProbsArgs, g *kernels.LogProbsGrad)
	sample         func(a *kernels.SampleArgs)
	adamW          func(p, g, m, v kernels.Tensor, s kernels.AdamWStep)
	unpack         func(raw []byte, w kernels.Weight, row int)
	sumSquares     func(x kernels.Tensor) float64
}

func newBroken() *broken {
	r := ref.New()
	return &broken{Backend: r, matMul: r.MatMul, matMulBackward: r.MatMulBackward, norm: r.RMSNorm, normBackward: r.RMSNormBackward,
		embed: r.Embed, embedBackward: r.EmbedBackward, scatter: r.ScatterAdd, rope: r.RoPE, writeKV: r.WriteKV,
		attention: r.Attention, attnBackward: r.AttentionBackward, glu: r.GLU, gluBackward: r.GLUBackward, logProbs: r.LogProbs,
		headBackward: r.LogProbsBackward, sample: r.Sample, adamW: r.AdamW, unpack: r.Unpack, sumSquares: r.SumSquares}
}

func (b *broken) MatMul(x kernels.Tensor, p []kernels.Product) { b.matMul(x, p) }
func (b *broken) MatMulBackward(dx, x kernels.Tensor, g []kernels.ProductGrad, keep bool) {
	b.matMulBackward(dx, x, g, keep)
}
func (b *broken) RMSNorm(y, inv, x, w kernels.Tensor, eps float32, keep bool) {
	b.norm(y, inv, x, w, eps, keep)
}
func (b *broken) RMSNormBackward(dx, dw, dy, x, w, inv kernels.Tensor, keep bool) {
	b.normBackward(dx, dw, dy, x, w, inv, keep)
}
func (b *broken) Embed(y kernels.Tensor, w kernels.Weight, ids kernels.Tensor, scale float32) {
	b.embed(y, w, ids, scale)
}
func (b *broken) EmbedBackward(dw kernels.Weight, dy, ids kernels.Tensor, scale float32) {
	b.embedBackward(dw, dy, ids, scale)
}
func (b *broken) ScatterAdd(y, x, rows kernels.Tensor) { b.scatter(y, x, rows) }
func (b *broken) RoPE(x kernels.Tensor, r kernels.Rope, positions kernels.Tensor, inverse bool) {
	b.rope(x, r, positions, inverse)
}
func (b *broken) WriteKV(kv kernels.KV, k, v, rows, slots kernels.Tensor) {
	b.writeKV(kv, k, v, rows, slots)
}
func (b *broken) Attention(a *kernels.AttentionArgs) { b.attention(a) }
func (b *broken) AttentionBackward(a *kernels.AttentionArgs, g *kernels.AttentionGrad) {
	b.attnBackward(a, g)
}
func (b *broken) GLU(y, gate, up kernels.Tensor, act kernels.Activation) { b.glu(y, gate, up, act) }
func (b *broken) GLUBackward(dgate, dup, dy, gate, up kernels.Tensor, act kernels.Activation) {
	b.gluBackward(dgate, dup, dy, gate, up, act)
}
func (b *broken) LogProbs(a *kernels.LogProbsArgs) { b.logProbs(a) }
func (b *broken) LogProbsBackward(a *kernels.LogProbsArgs, g *kernels.LogProbsGrad) {
	b.headBackward(a, g)
}
func (b *broken) Sample(a *kernels.SampleArgs) { b.sample(a) }
func (b *broken) AdamW(p, g, m, v kernels.Tensor, s kernels.AdamWStep) {
	b.adamW(p, g, m, v, s)
}
func (b *broken) Unpack(raw []byte, w kernels.Weight, row int) { b.unpack(raw, w, row) }
func (b *broken) SumSquares(x kernels.Tensor) float64          { return b.sumSquares(x) }

// The suite must see every fault, in the section it belongs to and for the reason it is one.
func TestSuiteSeesFaults(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroken()
			f.plant(b, b.Backend)
			failures := failuresOf(b, f.section, f.seen)
			assert.Truef(t, slices.ContainsFunc(failures, func(s string) bool { return strings.Contains(s, f.seen) }),
				"want a failure that says %q, have %q", f.seen, failures)
		})
	}
}

// Without a fault the same wrapper passes: it is the faults that are seen.
func TestSuitePassesTheUnbroken(t *testing.T) {
	for _, s := range []string{"MatMul", "Attention", "Sample", "gradients"} {
		assert.Empty(t, failuresOf(newBroken(), s, ""), s)
	}
}
