package kernelstest

import (
	"math"
	"slices"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/kernels/ref"
)

// last is the last element of a tensor.
func last(t kernels.Tensor) *float32 { return &t.Row(t.Rows - 1)[t.Cols-1] }

// up is the next float32 above.
func up(x float32) float32 { return math.Nextafter32(x, float32(math.Inf(1))) }

// fault is a way to be wrong, and the section that must see it; its message says how it was seen.
type fault struct {
	section, seen string
	plant         func(b *broken, r *ref.Backend)
}

var faults = map[string]fault{
	"one output of MatMul is off by 1e-3": {"MatMul", "off by", func(b *broken, r *ref.Backend) {
		b.matMul = func(x kernels.Tensor, p []kernels.Product) { r.MatMul(x, p); *last(p[0].Y) += 1e-3 }
	}},
	"MatMul depends on the number of rows": {"MatMul", "rows one by one", func(b *broken, r *ref.Backend) {
		b.matMul = func(x kernels.Tensor, p []kernels.Product) {
			if r.MatMul(x, p); x.Rows == 1 {
				*last(p[0].Y) = up(*last(p[0].Y))
			}
		}
	}},
	"MatMul writes past its columns": {"MatMul", "is no output", func(b *broken, r *ref.Backend) {
		b.matMul = func(x kernels.Tensor, p []kernels.Product) {
			r.MatMul(x, p)
			end := p[0].Y.Slice(x.Rows-1, x.Rows)
			end.Cols++
			*last(end) = 0
		}
	}},
	"MatMul reads past its input": {"MatMul", "NaN", func(b *broken, r *ref.Backend) {
		b.matMul = func(x kernels.Tensor, p []kernels.Product) {
			r.MatMul(x, p)
			x.Rows, x.Cols = 1, x.Rows*x.Stride+1
			*last(p[0].Y) += *last(x)
		}
	}},
	"MatMul spoils its input": {"MatMul", "is no output", func(b *broken, r *ref.Backend) {
		b.matMul = func(x kernels.Tensor, p []kernels.Product) { r.MatMul(x, p); *last(x) = 0 }
	}},
	"MatMul forgets Keep": {"MatMul", "off by", func(b *broken, r *ref.Backend) {
		b.matMul = func(x kernels.Tensor, p []kernels.Product) {
			for i := range p {
				p[i].Keep = false
			}
			r.MatMul(x, p)
		}
	}},
	"MatMul drops the last of 17 ranks": {"MatMul", "off by", func(b *broken, r *ref.Backend) {
		b.matMul = func(x kernels.Tensor, p []kernels.Product) {
			if r.MatMul(x, p); p[0].LoRA != nil && p[0].LoRA.A.Out == 17 {
				for n := range x.Rows {
					p[0].Y.Row(n)[0] -= p[0].H.Row(n)[16] * p[0].LoRA.B.Flat().F32()[16]
				}
			}
		}
	}},
	"MatMulBackward is not deterministic": {"MatMulBackward", "a second run", func(b *broken, r *ref.Backend) {
		b.matMulBackward = func(dx, x kernels.Tensor, g []kernels.ProductGrad, keep bool) {
			r.MatMulBackward(dx, x, g, keep)
			if b.calls++; b.calls%2 == 0 && dx.Present() {
				*last(dx) = up(*last(dx))
			}
		}
	}},
	"MatMulBackward adds rows in descending order": {"MatMulBackward", "rows", func(b *broken, r *ref.Backend) {
		b.matMulBackward = func(dx, x kernels.Tensor, g []kernels.ProductGrad, keep bool) {
			for n := x.Rows - 1; n >= 0; n-- {
				row, part := slices.Clone(g), dx
				for i := range row {
					row[i] = rowsOf(g[i], partOf(n))
				}
				if dx.Present() {
					part = dx.Slice(n, n+1)
				}
				r.MatMulBackward(part, x.Slice(n, n+1), row, keep)
			}
		}
	}},
	"MatMulBackward trains a frozen bias": {"MatMulBackward", "off by", func(b *broken, r *ref.Backend) {
		b.matMulBackward = func(dx, x kernels.Tensor, g []kernels.ProductGrad, keep bool) {
			r.MatMulBackward(dx, x, g, keep)
			if g[0].DBias.Present() {
				r.MatMulBackward(kernels.Tensor{}, x, []kernels.ProductGrad{{DY: g[0].DY, W: g[0].W, DBias: g[0].DBias}}, false)
			}
		}
	}},
	"RMSNorm forgets keep": {"RMSNorm", "off by", func(b *broken, r *ref.Backend) {
		b.norm = func(y, inv, x, w kernels.Tensor, eps float32, keep bool) { r.RMSNorm(y, inv, x, w, eps, false) }
	}},
	"RMSNorm forgets eps": {"RMSNorm", "off by", func(b *broken, r *ref.Backend) {
		b.norm = func(y, inv, x, w kernels.Tensor, eps float32, keep bool) { r.RMSNorm(y, inv, x, w, 0, keep) }
	}},
	"RMSNormBackward overwrites dw": {"RMSNormBackward", "off by", func(b *broken, r *ref.Backend) {
		b.normBackward = func(dx, dw, dy, x, w, inv kernels.Tensor, keep bool) {
			if dw.Present() {
				r.Zero(dw)
			}
			r.RMSNormBackward(dx, dw, dy, x, w, inv, keep)
		}
	}},
	"RMSNormBackward leaves out the norm's own slope": {"gradients", "exact gradient", func(b *broken, r *ref.Backend) {
		b.normBackward = func(dx, dw, dy, x, w, inv kernels.Tensor, keep bool) {
			r.RMSNormBackward(dx, dw, dy, x, w, inv, keep)
			for n := range x.Rows {
				for i := range x.Cols {
					dx.Row(n)[i] = dy.Row(n)[i] * w.F32()[i%w.Cols] * inv.Row(n)[i/w.Cols]
				}
			}
		}
	}},
	"Embed takes scale as 1": {"Embed", "bits differ", func(b *broken, r *ref.Backend) {
		b.embed = func(y kernels.Tensor, w kernels.Weight, ids kernels.Tensor, scale float32) { r.Embed(y, w, ids, 1) }
	}},
	"EmbedBackward adds rows in descending order": {"EmbedBackward", "rows", func(b *broken, r *ref.Backend) {
		b.embedBackward = func(dw kernels.Weight, dy, ids kernels.Tensor, scale float32) {
			for n := dy.Rows - 1; n >= 0; n-- {
				r.EmbedBackward(dw, dy.Slice(n, n+1), ids.Columns(n, n+1), scale)
			}
		}
	}},
	"ScatterAdd keeps the last of equal rows": {"Move", "bits differ", func(b *broken, r *ref.Backend) {
		b.scatter = func(y, x, rows kernels.Tensor) {
			old := slices.Clone(y.F32())
			for i, n := range rows.I32() {
				copy(y.Row(int(n)), old[int(n)*y.Stride:])
				r.ScatterAdd(y, x.Slice(i, i+1), rows.Columns(i, i+1))
			}
		}
	}},
	"RoPE does not know pairs": {"RoPE", "off by", func(b *broken, r *ref.Backend) {
		b.rope = func(x kernels.Tensor, p kernels.Rope, positions kernels.Tensor, inverse bool) {
			p.Paired = false
			r.RoPE(x, p, positions, inverse)
		}
	}},
	"RoPE does not turn back": {"gradients", "exact gradient", func(b *broken, r *ref.Backend) {
		b.rope = func(x kernels.Tensor, p kernels.Rope, positions kernels.Tensor, inverse bool) {
			r.RoPE(x, p, positions, false)
		}
	}},
	"WriteKV writes a row to its first slot only": {"WriteKV", "NaN", func(b *broken, r *ref.Backend) {
		b.writeKV = func(kv kernels.KV, k, v, rows, slots kernels.Tensor) {
			seen := map[int32]bool{}
			for i, n := range rows.I32() {
				if !seen[n] {
					r.WriteKV(kv, k, v, rows.Columns(i, i+1), slots.Columns(i, i+1))
				}
				seen[n] = true
			}
		}
	}},
	"Attention sees one position too many in a window": {"Attention", "off by", func(b *broken, r *ref.Backend) {
		b.attention = func(a *kernels.AttentionArgs) {
			wide := *a
			if a.Window > 0 {
				wide.Window++
			}
			r.Attention(&wide)
		}
	}},
	"Attention sees the rest of the page": {"Attention", "off by", func(b *broken, r *ref.Backend) {
		b.attention = func(a *kernels.AttentionArgs) {
			ahead := slices.Clone(a.Positions.I32())
			for i := range ahead {
				ahead[i] |= 15
			}
			wide := *a
			wide.Positions = kernels.Ints(ahead)
			r.Attention(&wide)
		}
	}},
	"Attention depends on the size of the chunk": {"Attention", "rows", func(b *broken, r *ref.Backend) {
		b.attention = func(a *kernels.AttentionArgs) {
			if r.Attention(a); a.Q.Rows > 5 {
				*last(a.Out) = up(*last(a.Out))
			}
		}
	}},
	"Attention mixes up the heads of a group": {"Attention", "off by", func(b *broken, r *ref.Backend) {
		b.attention = func(a *kernels.AttentionArgs) {
			r.Attention(a)
			for h := range a.Heads { // query head h reads key head h mod G
				one := *a
				one.Heads = a.KV.Heads
				from := h / a.KV.Heads * a.KV.Heads
				if from+one.Heads > a.Heads || h%a.KV.Heads != 0 {
					continue
				}
				d := a.KV.Dim
				one.Q, one.Out = a.Q.Columns(from*d, (from+one.Heads)*d), a.Out.Columns(from*d, (from+one.Heads)*d)
				one.LSE = a.LSE.Columns(from, from+one.Heads)
				r.Attention(&one)
			}
		}
	}},
	"AttentionBackward gives a shared row its first slot's gradient only": {"AttentionBackward", "off by", func(b *broken, r *ref.Backend) {
		b.attnBackward = func(a *kernels.AttentionArgs, g *kernels.AttentionGrad) {
			var rows, slots []int32
			for i, n := range g.Rows.I32() {
				if !slices.Contains(rows, n) {
					rows, slots = append(rows, n), append(slots, g.Slots.I32()[i])
				}
			}
			less := *g
			less.Rows, less.Slots = kernels.Ints(rows), kernels.Ints(slots)
			r.AttentionBackward(a, &less)
		}
	}},
	"AttentionBackward ignores the cap": {"gradients", "exact gradient", func(b *broken, r *ref.Backend) {
		b.attnBackward = func(a *kernels.AttentionArgs, g *kernels.AttentionGrad) {
			uncapped := *a
			uncapped.Softcap = 0
			r.AttentionBackward(&uncapped, g)
		}
	}},
	"GLU takes GELU for SiLU": {"GLU", "off by", func(b *broken, r *ref.Backend) {
		b.glu = func(y, gate, up kernels.Tensor, act kernels.Activation) { r.GLU(y, gate, up, kernels.GELUTanh) }
	}},
	"GLU is 3e-5 off on ordinary values": {"GLU", "off by", func(b *broken, r *ref.Backend) {
		b.glu = func(y, gate, up kernels.Tensor, act kernels.Activation) { r.GLU(y, gate, up, act); *last(y) += 3e-5 }
	}},
	"GLUBackward cannot work in place": {"GLU", "off by", func(b *broken, r *ref.Backend) {
		b.gluBackward = func(dgate, dup, dy, gate, up kernels.Tensor, act kernels.Activation) {
			spare := kernels.NewHost(kernels.F32, gate.Rows, gate.Cols)
			r.GLUBackward(dgate, spare, dy, gate, up, act)
			r.GLUBackward(spare, dup, dy, gate, up, act)
		}
	}},
	"LogProbs and Sample differ in the last bit": {"Sample", "log-prob of Sample", func(b *broken, r *ref.Backend) {
		b.logProbs = func(a *kernels.LogProbsArgs) { r.LogProbs(a); *last(a.LogP) = up(*last(a.LogP)) }
	}},
	"LogProbs depends on the number of rows": {"LogProbs", "rows", func(b *broken, r *ref.Backend) {
		b.logProbs = func(a *kernels.LogProbsArgs) {
			if r.LogProbs(a); a.Hidden.Rows > 8 {
				*last(a.Entropy) = up(*last(a.Entropy))
			}
		}
	}},
	"LogProbs takes every temperature as the first row's": {"LogProbs", "off by", func(b *broken, r *ref.Backend) {
		b.logProbs = func(a *kernels.LogProbsArgs) {
			same := *a
			same.InvT = kernels.NewHost(kernels.F32, 1, a.Hidden.Rows)
			for i := range same.InvT.F32() {
				same.InvT.F32()[i] = a.InvT.F32()[0]
			}
			r.LogProbs(&same)
		}
	}},
	"LogProbsBackward leaves out the entropy": {"gradients", "exact gradient", func(b *broken, r *ref.Backend) {
		b.headBackward = func(a *kernels.LogProbsArgs, g *kernels.LogProbsGrad) {
			none := *g
			none.DEntropy = kernels.NewHost(kernels.F32, 1, a.Hidden.Rows)
			r.LogProbsBackward(a, &none)
		}
	}},
	"Sample breaks ties upwards":     {"Sample", "of equal tokens", changeRow(func(r *kernels.SampleRow) { r.Bias = append(r.Bias, kernels.TokenBias{ID: 5, Value: 1e-4}) })},
	"Sample keeps one token too few": {"Sample", "top-k", changeRow(func(r *kernels.SampleRow) { r.TopK = max(r.TopK-1, min(r.TopK, 1)) })},
	"Sample ignores min-p":           {"Sample", "min-p", changeRow(func(r *kernels.SampleRow) { r.MinP = 0 })},
	"Sample ignores top-p":           {"Sample", "top-p", changeRow(func(r *kernels.SampleRow) { r.TopP = 1 })},
	"Sample ignores bans":            {"Sample", "", changeRow(func(r *kernels.SampleRow) { r.Banned = nil })},
	"Sample draws at 1−U":            {"Sample", "whole", changeRow(func(r *kernels.SampleRow) { r.U = 1 - r.U })},
	"Sample reports biased log-probs": {"Sample", "log-prob of Sample", func(b *broken, r *ref.Backend) {
		b.sample = func(a *kernels.SampleArgs) {
			r.Sample(a)
			for i := range a.Rows {
				if len(a.Rows[i].Bias) > 0 {
					a.Out[i].LogP += 0.01
				}
			}
		}
	}},
	"AdamW counts steps from 0": {"AdamW", "off by", func(b *broken, r *ref.Backend) {
		b.adamW = func(p, g, m, v kernels.Tensor, s kernels.AdamWStep) { s.T++; r.AdamW(p, g, m, v, s) }
	}},
	"AdamW forgets the decay": {"AdamW", "off by", func(b *broken, r *ref.Backend) {
		b.adamW = func(p, g, m, v kernels.Tensor, s kernels.AdamWStep) { s.WeightDecay = 0; r.AdamW(p, g, m, v, s) }
	}},
	"SumSquares leaves out the last element": {"SumSquares", "off by", func(b *broken, r *ref.Backend) {
		b.sumSquares = func(x kernels.Tensor) float64 { return r.SumSquares(x) - float64(*last(x)**last(x)) }
	}},
	"Unpack loses a bit": {"Pack", "Unpack returned other bytes", func(b *broken, r *ref.Backend) {
		b.unpack = func(raw []byte, w kernels.Weight, row int) {
			if r.Unpack(raw, w, row); w.Format == quant.Q5_K {
				raw[len(raw)-1] ^= 0x80
			}
		}
	}},
}

func partOf(n int) part { return part{n, n + 1} }

// changeRow samples as if every row had been asked for something else.
func changeRow(change func(*kernels.SampleRow)) func(*broken, *ref.Backend) {
	return func(b *broken, r *ref.Backend) {
		b.sample = func(a *kernels.SampleArgs) {
			other := *a
			other.Rows = slices.Clone(a.Rows)
			for i := range other.Rows {
				change(&other.Rows[i])
			}
			r.Sample(&other)
		}
	}
}
