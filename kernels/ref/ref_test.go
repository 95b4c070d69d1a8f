package ref

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/quant"
)

// exact allows for the last bits of float64.
const exact = 1e-14

func rows(cols int, v ...float64) Matrix[float64] {
	return Matrix[float64]{Rows: len(v) / cols, Cols: cols, Stride: cols, V: v}
}

func TestRMSNormByHand(t *testing.T) {
	// Two runs of two channels: mean squares 25 and 1.
	x, w := rows(4, 1, 7, 1, -1), rows(2, 1, 2)
	y, inv := rows(4, 0, 0, 10, 0), rows(2, 0, 0)
	RMSNorm(y, inv, x, w, 0, true)
	assert.InDeltaSlice(t, []float64{0.2, 1}, inv.V, exact)
	assert.InDeltaSlice(t, []float64{0.2, 2.8, 11, -2}, y.V, exact)

	// g = dy·w = (1, 2): Σ g·x = 15, c = 15·0.2³/2 = 0.06; the second run has dy 0.
	dx, dw := rows(4, 0, 0, 5, 5), rows(2, 1, 0)
	RMSNormBackward(dx, dw, rows(4, 1, 1, 0, 0), x, w, inv, true)
	assert.InDeltaSlice(t, []float64{0.14, -0.02, 5, 5}, dx.V, exact)
	assert.InDeltaSlice(t, []float64{1.2, 1.4}, dw.V, exact)
}

func TestRoPEByHand(t *testing.T) {
	// The last of four channels does not turn; cos 0.6, sin 0.8 at position 1.
	table := rows(2, 1, 0, 0.6, 0.8)
	x := rows(3, 1, 2, 9, 1, 2, 9)
	RoPE(x, Rope[float64]{Table: table, Dims: 2, HeadDim: 3}, []int32{0, 1}, false)
	assert.InDeltaSlice(t, []float64{1, 2, 9, -1, 2, 9}, x.V, exact)

	table = rows(4, 0.6, 0, 0.8, 1) // the second pair turns by 90°
	x = rows(4, 1, 2, 3, 4)
	RoPE(x, Rope[float64]{Table: table, Dims: 4, HeadDim: 4}, []int32{0}, false)
	assert.InDeltaSlice(t, []float64{0.6 - 2.4, -4, 0.8 + 1.8, 2}, x.V, exact, "pairs (0, 2) and (1, 3)")
	x = rows(4, 1, 2, 3, 4)
	RoPE(x, Rope[float64]{Table: table, Dims: 4, HeadDim: 4, Paired: true}, []int32{0}, false)
	assert.InDeltaSlice(t, []float64{0.6 - 1.6, 0.8 + 1.2, -4, 3}, x.V, exact, "pairs (0, 1) and (2, 3)")
	RoPE(x, Rope[float64]{Table: table, Dims: 4, HeadDim: 4, Paired: true}, []int32{0}, true)
	assert.InDeltaSlice(t, []float64{1, 2, 3, 4}, x.V, exact, "the inverse turns back")
}

func TestMatMulByHand(t *testing.T) {
	x, y, h := rows(2, 1, 2), rows(2, 100, 200), rows(2, -1, -1)
	lora := &LowRank[float64]{A: rows(2, 3, 1), B: rows(1, 1, 10), Scale: 2}
	MatMul(x, Product[float64]{Y: y, W: rows(2, 1, 1, 0, -1), Bias: rows(2, 0.5, 0.25), Keep: true, LoRA: lora, H: h})
	assert.Equal(t, []float64{10, 0}, h.V, "2·(3·1 + 1·2), and the padding is zero")
	assert.Equal(t, []float64{100 + 0.5 + 3 + 10, 200 + 0.25 - 2 + 100}, y.V)

	dx, dw, dbias, da, db, dh := rows(2, 0, 0), rows(2, 0, 0, 0, 0), rows(2, 0, 0), rows(2, 0, 0), rows(1, 0, 0), rows(2, 9, 9)
	MatMulBackward(dx, x, []ProductGrad[float64]{{DY: rows(2, 1, 3), W: rows(2, 1, 1, 0, -1), DW: dw, DBias: dbias, LoRA: lora,
		H: h, DH: dh, DA: da, DB: db}}, false)
	assert.Equal(t, []float64{62, 0}, dh.V, "2·(1·1 + 3·10)")
	assert.Equal(t, []float64{1 + 62*3, 1 - 3 + 62}, dx.V)
	assert.Equal(t, []float64{1, 2, 3, 6}, dw.V)
	assert.Equal(t, []float64{1, 3}, dbias.V)
	assert.Equal(t, []float64{62, 124}, da.V)
	assert.Equal(t, []float64{10, 30}, db.V)
}

// twoTokens are positions 0 and 1 of one sequence with keys 0 and ln 3, values 4 and 8, in page 2,
// seen by two query heads of one channel from position 1: scores (0, ln 3) and (0, 0).
func twoTokens(window int) *Attention[float64] {
	kv := KV[float64]{K: NewMatrix[float64](3, kernels.PageSize), V: NewMatrix[float64](3, kernels.PageSize), Heads: 1, Dim: 1}
	for i := range kv.K.V {
		kv.K.V[i], kv.V.V[i] = math.NaN(), math.NaN()
	}
	WriteKV(kv, rows(1, 7, 0, math.Log(3)), rows(1, 7, 4, 8), []int32{1, 2}, []int32{32, 33})
	return &Attention[float64]{Out: rows(2, 0, 0), LSE: rows(2, 0, 0), Q: rows(2, 1, 0), KV: kv, Tables: [][]int32{{0}, {2, 9}},
		Seq: []int32{1}, Positions: []int32{1}, Heads: 2, Scale: 1, Window: window}
}

func TestAttentionByHand(t *testing.T) {
	a := twoTokens(0)
	a.Forward()
	assert.InDeltaSlice(t, []float64{0.25*4 + 0.75*8, 6}, a.Out.V, exact)
	assert.InDeltaSlice(t, []float64{math.Log(4), math.Log(2)}, a.LSE.V, exact)

	// Head 0: dp (4, 8), δ 7, ds (−0.75, 0.75). Head 1 has dout 0.
	dq, dk, dv := rows(2, 9, 9), rows(1, 9, 9, 9), rows(1, 9, 9, 9)
	a.Backward(rows(2, 1, 0), dq, dk, dv, []int32{1, 2}, []int32{32, 33})
	assert.InDeltaSlice(t, []float64{0.75 * math.Log(3), 0}, dq.V, exact)
	assert.InDeltaSlice(t, []float64{0, -0.75, 0.75}, dk.V, exact)
	assert.InDeltaSlice(t, []float64{0, 0.25, 0.75}, dv.V, exact)

	w := twoTokens(1)
	w.Forward()
	assert.Equal(t, []float64{8, 8}, w.Out.V, "a window of 1 sees the token itself")
	assert.Equal(t, []float64{math.Log(3), 0}, w.LSE.V)

	c := twoTokens(0)
	c.Softcap = math.Log(3) // the second score becomes ln 3·tanh 1
	c.Forward()
	s := math.Exp(math.Log(3) * math.Tanh(1))
	assert.InDelta(t, (4+8*s)/(1+s), c.Out.V[0], exact)
}

func TestGLUByHand(t *testing.T) {
	y := rows(1, 0, 0)
	GLU(y, rows(1, math.Log(3), -1e4), rows(1, 2, 5), kernels.SiLU)
	assert.InDeltaSlice(t, []float64{2 * 0.75 * math.Log(3), 0}, y.V, exact)
	GLU(y, rows(1, 1, -1e4), rows(1, 1, 5), kernels.GELUTanh)
	assert.InDeltaSlice(t, []float64{0.8411919906082768, 0}, y.V, exact) // ½(1+tanh(√(2/π)·1.044715))
}

// eighths is one row whose logits are ln 1, ln 2, ln 5.
func eighths(invT float64) *LogProbs[float64] {
	return &LogProbs[float64]{LogP: make([]float64, 2), Entropy: make([]float64, 1), LSE: make([]float64, 1),
		Hidden: rows(1, 1), W: rows(1, 0, math.Log(2), math.Log(5)), PairRows: []int32{0, 0}, Targets: []int32{2, 0},
		InvT: []float64{invT}}
}

func TestLogProbsByHand(t *testing.T) {
	a := eighths(1)
	a.Forward()
	assert.InDeltaSlice(t, []float64{math.Log(5. / 8), math.Log(1. / 8)}, a.LogP, exact)
	assert.InDelta(t, math.Log(8), a.LSE[0], exact)
	h := -(math.Log(1./8) + 2*math.Log(2./8) + 5*math.Log(5./8)) / 8
	assert.InDelta(t, h, a.Entropy[0], exact)

	// One pair weighs 1, the other 2: dz = 1[2] + 2·1[0] − 3p.
	dw := NewMatrix[float64](3, 1)
	dhidden := rows(1, 0)
	a.Backward([]float64{1, 2}, []float64{0}, dhidden, dw)
	assert.InDeltaSlice(t, []float64{2 - 3./8, -6. / 8, 1 - 15./8}, dw.V, exact)
	assert.InDelta(t, -6./8*math.Log(2)-7./8*math.Log(5), dhidden.V[0], exact)

	dw = NewMatrix[float64](3, 1)
	a.Backward([]float64{0, 0}, []float64{1}, Matrix[float64]{}, dw)
	for i, p := range []float64{1. / 8, 2. / 8, 5. / 8} {
		assert.InDelta(t, -p*(math.Log(p)+h), dw.V[i], exact, "entropy")
	}

	cold := eighths(2) // p ∝ 1, 4, 25
	cold.Forward()
	assert.InDeltaSlice(t, []float64{math.Log(25. / 30), math.Log(1. / 30)}, cold.LogP, exact)
}

// tenths are logits whose probabilities are 0.1, 0.2, 0.3, 0.4.
var tenths = []float64{0, math.Log(2), math.Log(3), math.Log(4)}

func TestDistributionByHand(t *testing.T) {
	for _, c := range []struct {
		name string
		row  kernels.SampleRow
		ids  []int32
		p    []float64
	}{
		{"whole", kernels.SampleRow{InvT: 1, TopP: 1}, []int32{0, 1, 2, 3}, []float64{.1, .2, .3, .4}},
		{"half the temperature", kernels.SampleRow{InvT: 2, TopP: 1}, []int32{0, 1, 2, 3}, []float64{1. / 30, 4. / 30, 9. / 30, 16. / 30}},
		{"top-k", kernels.SampleRow{InvT: 1, TopP: 1, TopK: 2}, []int32{2, 3}, []float64{3. / 7, 4. / 7}},
		{"top-p reached by two", kernels.SampleRow{InvT: 1, TopP: 0.6}, []int32{2, 3}, []float64{3. / 7, 4. / 7}},
		{"top-p reached by one", kernels.SampleRow{InvT: 1, TopP: 0.01}, []int32{3}, []float64{1}},
		{"min-p", kernels.SampleRow{InvT: 1, TopP: 1, MinP: 0.49}, []int32{1, 2, 3}, []float64{2. / 9, 3. / 9, 4. / 9}},
		{"min-p of 1", kernels.SampleRow{InvT: 1, TopP: 1, MinP: 1}, []int32{3}, []float64{1}},
		// Of 3/7 and 4/7 the first reaches 0.5; of all four it would take two.
		{"top-k before top-p", kernels.SampleRow{InvT: 1, TopP: 0.5, TopK: 2}, []int32{3}, []float64{1}},
		{"bias before the cuts", kernels.SampleRow{InvT: 1, TopP: 1, TopK: 1, Bias: []kernels.TokenBias{{ID: 0, Value: 2}}}, []int32{0}, []float64{1}},
		{"bans", kernels.SampleRow{InvT: 1, TopP: 1, TopK: 2, Banned: []int32{3}}, []int32{1, 2}, []float64{2. / 5, 3. / 5}},
	} {
		ids, p := Distribution(tenths, c.row)
		assert.Equal(t, c.ids, ids, c.name)
		assert.InDeltaSlice(t, c.p, p, exact, c.name)
	}
	ids, _ := Distribution([]float64{1, 2, 2, 2}, kernels.SampleRow{InvT: 1, TopP: 1, TopK: 2})
	assert.Equal(t, []int32{1, 2}, ids, "ties go to the lower id")
}

func TestDrawByHand(t *testing.T) {
	for u, want := range map[float64]int32{0: 0, 0.0999: 0, 0.1001: 1, 0.2999: 1, 0.3001: 2, 0.6001: 3, math.Nextafter(1, 0): 3} {
		id, err := Draw(tenths, kernels.SampleRow{InvT: 1, TopP: 1, U: u})
		require.NoError(t, err)
		assert.Equal(t, want, id, "U %v", u)
	}
	id, err := Draw([]float64{0, 0}, kernels.SampleRow{InvT: 1, TopP: 1, U: 0.5})
	require.NoError(t, err)
	assert.Equal(t, int32(1), id, "the sum must exceed U")
	id, err = Draw([]float64{1, 2, 2}, kernels.SampleRow{InvT: 1, Greedy: true, U: 0.99})
	require.NoError(t, err)
	assert.Equal(t, int32(1), id, "greedy")
	_, err = Draw(tenths, kernels.SampleRow{InvT: 1, TopP: 1, Banned: []int32{0, 1, 2, 3}})
	assert.EqualError(t, err, "no token can be drawn: the largest logit is -Inf")
	_, err = Draw([]float64{0, math.NaN()}, kernels.SampleRow{InvT: 1, Greedy: true})
	assert.EqualError(t, err, "no token can be drawn: the largest logit is NaN")
}

// Gradients of parameters are one float32 addition a row: 1 is lost beside 1e8, and found when the
// large ones have cancelled.
func TestParameterGradientsGrowRowByRow(t *testing.T) {
	b, ids := New(), kernels.Ints([]int32{0, 0, 0})
	for _, c := range []struct {
		dy   []float32
		want float32
	}{{[]float32{1e8, 1, -1e8}, 0}, {[]float32{1e8, -1e8, 1}, 1}} {
		dw := kernels.Weight{Mem: kernels.NewHost(kernels.F32, 1, 1).Mem, Bytes: 4, Format: quant.F32, Out: 1, In: 1}
		b.EmbedBackward(dw, kernels.Floats(3, 1, c.dy), ids, 1)
		assert.Equal(t, []float32{c.want}, dw.Flat().F32())
	}
}

func TestSyncTellsTheFirstFailureOnce(t *testing.T) {
	b := New()
	row := kernels.SampleRow{InvT: 1, TopP: 1, Banned: []int32{0}}
	w := kernels.Weight{Mem: kernels.NewHost(kernels.F32, 1, 1).Mem, Bytes: 4, Format: quant.F32, Out: 1, In: 1}
	b.Sample(&kernels.SampleArgs{Hidden: kernels.NewHost(kernels.F32, 2, 1), W: w, Logits: kernels.NewHost(kernels.F32, 2, 16),
		Rows: []kernels.SampleRow{row, row}, Out: make([]kernels.Sampled, 2)})
	assert.EqualError(t, b.Sync(), "ref: sample: row 0: no token can be drawn: the largest logit is -Inf")
	assert.NoError(t, b.Sync())
	_, err := b.Alloc(1 << 40)
	assert.ErrorContains(t, err, "ref: alloc: 1099511627776 bytes")
}

// adamGolden is torch.optim.AdamW's own trajectory; tests/testdata/golden-hf/README.md.
type adamGolden struct {
	Runs []struct {
		Name string
		Args struct {
			LR, Eps     float64
			Betas       [2]float64
			WeightDecay float64 `json:"weight_decay"`
		}
		MaxGradNorm *float64      `json:"max_grad_norm"`
		LRPerStep   []float64     `json:"lr_per_step"`
		P0          [][]float64   `json:"p0"`
		Grads       [][][]float64 `json:"grads"`
		Float64     struct {
			Params [][][]float64
		}
		FinalM [][]float64 `json:"final_m"`
		FinalV [][]float64 `json:"final_v"`
	}
}

func TestAdamWMatchesTorch(t *testing.T) {
	raw, err := os.ReadFile("../../tests/testdata/golden-hf/optim/adamw.json")
	require.NoError(t, err)
	var golden adamGolden
	require.NoError(t, json.Unmarshal(raw, &golden))
	require.NotEmpty(t, golden.Runs)
	for _, run := range golden.Runs {
		p := flatten(run.P0)
		m, v := make([]float64, len(p)), make([]float64, len(p))
		for step, grads := range run.Grads {
			g := flatten(grads)
			s := kernels.AdamWStep{LR: run.Args.LR, Beta1: run.Args.Betas[0], Beta2: run.Args.Betas[1], Eps: run.Args.Eps,
				WeightDecay: run.Args.WeightDecay, GradScale: 1, T: step + 1}
			if run.MaxGradNorm != nil {
				s.GradScale = math.Min(1, *run.MaxGradNorm/(math.Sqrt(dot(g, g))+1e-6))
			}
			if run.LRPerStep != nil {
				s.LR = run.LRPerStep[step]
			}
			AdamW(p, g, m, v, s)
			// The golden numbers have 12 digits.
			closeTo(t, flatten(run.Float64.Params[step]), p, "%s, parameters after step %d", run.Name, step+1)
		}
		closeTo(t, flatten(run.FinalM), m, "%s, first moments", run.Name)
		closeTo(t, flatten(run.FinalV), v, "%s, second moments", run.Name)
	}
}

func closeTo(t *testing.T, want, got []float64, format string, args ...any) {
	t.Helper()
	for i := range want {
		assert.InDeltaf(t, want[i], got[i], 1e-11*math.Max(1e-3, math.Abs(want[i])), format, args...)
	}
}

func flatten(parts [][]float64) []float64 {
	var all []float64
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
