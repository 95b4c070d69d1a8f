package kernels

func (c *checked) Embed(y Tensor, w Weight, ids Tensor, scale float32) {
	const op = "Embed"
	c.weight(op, "w", &w, w.Out, w.In)
	shape(op, "y", &y, y.Rows, w.In)
	ints(op, "ids", &ids, y.Rows, w.Out)
	c.b.Embed(y, w, ids, scale)
}

func (c *checked) EmbedBackward(dw Weight, dy, ids Tensor, scale float32) {
	const op = "EmbedBackward"
	c.trained(op, "dw", &dw, dw.Out, dw.In)
	shape(op, "dy", &dy, dy.Rows, dw.In)
	ints(op, "ids", &ids, dy.Rows, dw.Out)
	c.b.EmbedBackward(dw, dy, ids, scale)
}

func (c *checked) Gather(y, x, rows Tensor) {
	const op = "Gather"
	inMemory(op, "x", &x, F32)
	shape(op, "y", &y, y.Rows, x.Cols)
	ints(op, "rows", &rows, y.Rows, x.Rows)
	c.b.Gather(y, x, rows)
}

func (c *checked) ScatterAdd(y, x, rows Tensor) {
	const op = "ScatterAdd"
	inMemory(op, "x", &x, F32)
	shape(op, "y", &y, y.Rows, x.Cols)
	ints(op, "rows", &rows, x.Rows, y.Rows)
	c.b.ScatterAdd(y, x, rows)
}

// runs checks x [N, C] and w [1, W], and returns C/W.
func runs(op string, x, w *Tensor) int {
	inMemory(op, "x", x, F32)
	inMemory(op, "w", w, F32)
	if w.Rows != 1 || w.Cols < 1 || x.Cols%w.Cols != 0 {
		wrong(op, "w is [%d %d], x is [%d %d]: want [1 W] with W dividing %d", w.Rows, w.Cols, x.Rows, x.Cols, x.Cols)
	}
	return x.Cols / w.Cols
}

func (c *checked) RMSNorm(y, inv, x, w Tensor, eps float32, keep bool) {
	const op = "RMSNorm"
	n := runs(op, &x, &w)
	shape(op, "y", &y, x.Rows, x.Cols)
	shape(op, "inv", &inv, x.Rows, n)
	notNegative(op, "eps", float64(eps))
	c.b.RMSNorm(y, inv, x, w, eps, keep)
}

func (c *checked) RMSNormBackward(dx, dw, dy, x, w, inv Tensor, keep bool) {
	const op = "RMSNormBackward"
	n := runs(op, &x, &w)
	shape(op, "dx", &dx, x.Rows, x.Cols)
	optional(op, "dw", &dw, 1, w.Cols)
	shape(op, "dy", &dy, x.Rows, x.Cols)
	shape(op, "inv", &inv, x.Rows, n)
	c.b.RMSNormBackward(dx, dw, dy, x, w, inv, keep)
}

// padded is n rounded up to a multiple of 16.
func padded(n int) int { return (n + 15) &^ 15 }

// in checks that a weight multiplies x, and its own consistency.
func (c *checked) in(op string, x *Tensor, w *Weight) {
	if w.Mem != nil && x.Cols != w.In {
		wrong(op, "x is [%d %d], w wants %d", x.Rows, x.Cols, w.In)
	}
	c.weight(op, "w", w, w.Out, w.In)
}

// lowRank checks a LoRA pair on w and the product x·Aᵀ of n rows.
func (c *checked) lowRank(op, name string, l *LowRank, w *Weight, h *Tensor, n int) {
	c.trained(op, "lora A", &l.A, l.A.Out, w.In)
	c.trained(op, "lora B", &l.B, w.Out, l.A.Out)
	shape(op, name, h, n, padded(l.A.Out))
}

func (c *checked) MatMul(x Tensor, products []Product) {
	const op = "MatMul"
	inMemory(op, "x", &x, F32)
	for i := range products {
		p := &products[i]
		c.in(op, &x, &p.W)
		shape(op, "y", &p.Y, x.Rows, p.W.Out)
		optional(op, "bias", &p.Bias, 1, p.W.Out)
		if p.LoRA != nil {
			c.lowRank(op, "h", p.LoRA, &p.W, &p.H, x.Rows)
		}
	}
	c.b.MatMul(x, products)
}

func (c *checked) MatMulBackward(dx, x Tensor, grads []ProductGrad, keep bool) {
	const op = "MatMulBackward"
	inMemory(op, "x", &x, F32)
	optional(op, "dx", &dx, x.Rows, x.Cols)
	for i := range grads {
		g := &grads[i]
		c.in(op, &x, &g.W)
		shape(op, "dy", &g.DY, x.Rows, g.W.Out)
		optional(op, "dbias", &g.DBias, 1, g.W.Out)
		if g.DW.Mem != nil {
			c.trained(op, "dw", &g.DW, g.W.Out, g.W.In)
		}
		if g.LoRA != nil {
			c.lowRank(op, "dh", g.LoRA, &g.W, &g.DH, x.Rows)
		}
		if g.DA.Mem == nil && g.DB.Mem == nil {
			continue
		}
		if g.LoRA == nil {
			wrong(op, "product %d asks for lora gradients and has no lora", i)
		}
		shape(op, "h", &g.H, x.Rows, padded(g.LoRA.A.Out))
		c.trained(op, "da", &g.DA, g.LoRA.A.Out, g.W.In)
		c.trained(op, "db", &g.DB, g.W.Out, g.LoRA.A.Out)
	}
	c.b.MatMulBackward(dx, x, grads, keep)
}

func (c *checked) RoPE(x Tensor, r Rope, positions Tensor, inverse bool) {
	const op = "RoPE"
	inMemory(op, "x", &x, F32)
	if r.HeadDim < 1 || x.Cols%r.HeadDim != 0 || r.Dims < 0 || r.Dims%2 != 0 || r.Dims > r.HeadDim {
		wrong(op, "x is [%d %d], heads are %d wide and turn %d", x.Rows, x.Cols, r.HeadDim, r.Dims)
	}
	shape(op, "table", &r.Table, r.Table.Rows, r.Dims)
	ints(op, "positions", &positions, x.Rows, r.Table.Rows)
	c.b.RoPE(x, r, positions, inverse)
}

// kv checks a layer's pages.
func kv(op string, p *KV) {
	if p.Heads < 1 || p.Dim < 1 {
		wrong(op, "%d key heads of %d", p.Heads, p.Dim)
	}
	shape(op, "pages of k", &p.K, p.K.Rows, p.Heads*p.Dim*PageSize)
	shape(op, "pages of v", &p.V, p.K.Rows, p.Heads*p.Dim*PageSize)
}

func (c *checked) WriteKV(p KV, k, v Tensor, rows, slots Tensor) {
	const op = "WriteKV"
	kv(op, &p)
	shape(op, "k", &k, k.Rows, p.Heads*p.Dim)
	shape(op, "v", &v, k.Rows, p.Heads*p.Dim)
	ints(op, "rows", &rows, rows.Cols, k.Rows)
	ints(op, "slots", &slots, rows.Cols, p.K.Rows*PageSize)
	c.b.WriteKV(p, k, v, rows, slots)
}

func (c *checked) Attention(a *AttentionArgs) {
	attention("Attention", a)
	c.b.Attention(a)
}

func attention(op string, a *AttentionArgs) {
	kv(op, &a.KV)
	n := a.Q.Rows
	if a.Heads < 1 || a.Heads%a.KV.Heads != 0 {
		wrong(op, "%d query heads over %d key heads", a.Heads, a.KV.Heads)
	}
	shape(op, "q", &a.Q, n, a.Heads*a.KV.Dim)
	shape(op, "out", &a.Out, n, a.Heads*a.KV.Dim)
	shape(op, "lse", &a.LSE, n, a.Heads)
	inMemory(op, "tables", &a.Tables, I32)
	ints(op, "seq", &a.Seq, n, a.Tables.Rows)
	ints(op, "positions", &a.Positions, n, a.Tables.Cols*PageSize)
	if a.Window < 0 {
		wrong(op, "window is %d, want 0 or more", a.Window)
	}
	notNegative(op, "softcap", float64(a.Softcap))
	if a.Seq.Mem.Host != nil && a.Tables.Mem.Host != nil && a.Positions.Mem.Host != nil && n > 0 {
		tables(op, a)
	}
}

// tables checks the page ids that rows reach. A row whose sequence is its predecessor's, at a later
// position, repeats none of its pages.
func tables(op string, a *AttentionArgs) {
	seqs, positions, ids := a.Seq.I32(), a.Positions.I32(), a.Tables.I32()
	var known int32 // pages below it are checked for the last row's sequence
	for n, seq := range seqs {
		first, last := int32(0), positions[n]/PageSize
		if a.Window > 0 {
			first = max(0, positions[n]-int32(min(a.Window, 1<<30))+1) / PageSize
		}
		if n > 0 && seq == seqs[n-1] && positions[n] > positions[n-1] {
			first = max(first, known)
		}
		for p := first; p <= last; p++ {
			if id := ids[int(seq)*a.Tables.Stride+int(p)]; id < 0 || int(id) >= a.KV.K.Rows {
				wrong(op, "page %d of sequence %d is %d, want 0 to %d", p, seq, id, a.KV.K.Rows-1)
			}
		}
		known = last + 1
	}
}

func (c *checked) AttentionBackward(a *AttentionArgs, g *AttentionGrad) {
	const op = "AttentionBackward"
	attention(op, a)
	n, width := a.Q.Rows, a.KV.Heads*a.KV.Dim
	shape(op, "dout", &g.DOut, n, a.Q.Cols)
	shape(op, "dq", &g.DQ, n, a.Q.Cols)
	shape(op, "dk", &g.DK, n, width)
	shape(op, "dv", &g.DV, n, width)
	ints(op, "rows", &g.Rows, g.Rows.Cols, n)
	ints(op, "slots", &g.Slots, g.Rows.Cols, a.KV.K.Rows*PageSize)
	flat(op, "scratch", &g.Scratch, AttentionScratch(n, 1, a.Heads, a.KV.Heads, a.KV.Dim))
	c.b.AttentionBackward(a, g)
}

func (c *checked) GLU(y, gate, up Tensor, act Activation) {
	activated("GLU", &y, &gate, &up, act)
	c.b.GLU(y, gate, up, act)
}

func activated(op string, y, gate, up *Tensor, act Activation) {
	inMemory(op, "gate", gate, F32)
	shape(op, "up", up, gate.Rows, gate.Cols)
	shape(op, "y", y, gate.Rows, gate.Cols)
	if act > GELUTanh {
		wrong(op, "activation %d is not one", act)
	}
}

func (c *checked) GLUBackward(dgate, dup, dy, gate, up Tensor, act Activation) {
	const op = "GLUBackward"
	activated(op, &dy, &gate, &up, act)
	shape(op, "dgate", &dgate, gate.Rows, gate.Cols)
	shape(op, "dup", &dup, gate.Rows, gate.Cols)
	c.b.GLUBackward(dgate, dup, dy, gate, up, act)
}

func (c *checked) LogProbs(a *LogProbsArgs) {
	c.logProbs("LogProbs", a)
	c.b.LogProbs(a)
}

func (c *checked) logProbs(op string, a *LogProbsArgs) {
	inMemory(op, "hidden", &a.Hidden, F32)
	if a.W.Mem != nil && a.Hidden.Cols != a.W.In {
		wrong(op, "hidden is [%d %d], w wants %d", a.Hidden.Rows, a.Hidden.Cols, a.W.In)
	}
	c.weight(op, "w", &a.W, a.W.Out, a.W.In)
	m, p := a.Hidden.Rows, a.LogP.Cols
	shape(op, "logp", &a.LogP, 1, p)
	shape(op, "entropy", &a.Entropy, 1, m)
	shape(op, "lse", &a.LSE, 1, m)
	shape(op, "invT", &a.InvT, 1, m)
	ints(op, "pair rows", &a.PairRows, p, m)
	ints(op, "targets", &a.Targets, p, a.W.Out)
	notNegative(op, "softcap", float64(a.Softcap))
	flat(op, "scratch", &a.Scratch, LogProbsScratch(m, a.W.Out, 1))
	if a.PairRows.Mem.Host != nil {
		rows := a.PairRows.I32()
		for i := 1; i < len(rows); i++ {
			if rows[i] < rows[i-1] {
				wrong(op, "pair rows %d and %d are %d and %d, want them ascending", i-1, i, rows[i-1], rows[i])
			}
		}
	}
	if a.InvT.Mem.Host != nil {
		for _, v := range a.InvT.F32() {
			positive(op, "1/temperature", float64(v))
		}
	}
}

func (c *checked) LogProbsBackward(a *LogProbsArgs, g *LogProbsGrad) {
	const op = "LogProbsBackward"
	c.logProbs(op, a)
	shape(op, "dlogp", &g.DLogP, 1, a.LogP.Cols)
	shape(op, "dentropy", &g.DEntropy, 1, a.Hidden.Rows)
	optional(op, "dhidden", &g.DHidden, a.Hidden.Rows, a.Hidden.Cols)
	if g.DW.Mem != nil {
		c.trained(op, "dw", &g.DW, a.W.Out, a.W.In)
	}
	c.b.LogProbsBackward(a, g)
}

func (c *checked) Sample(a *SampleArgs) {
	const op = "Sample"
	inMemory(op, "hidden", &a.Hidden, F32)
	if a.W.Mem != nil && a.Hidden.Cols != a.W.In {
		wrong(op, "hidden is [%d %d], w wants %d", a.Hidden.Rows, a.Hidden.Cols, a.W.In)
	}
	c.weight(op, "w", &a.W, a.W.Out, a.W.In)
	shape(op, "logits", &a.Logits, a.Hidden.Rows, padded(a.W.Out))
	notNegative(op, "softcap", float64(a.Softcap))
	if len(a.Rows) != a.Hidden.Rows || len(a.Out) != a.Hidden.Rows {
		wrong(op, "hidden has %d rows, Rows %d, Out %d", a.Hidden.Rows, len(a.Rows), len(a.Out))
	}
	for i := range a.Rows {
		sampleRow(op, i, &a.Rows[i], a.W.Out)
	}
	c.b.Sample(a)
}

func sampleRow(op string, i int, r *SampleRow, vocab int) {
	positive(op, "1/temperature", float64(r.InvT))
	if r.TopK < 0 || r.NumTop < 0 || !(r.MinP >= 0 && r.MinP <= 1) || !(r.U >= 0 && r.U < 1) {
		wrong(op, "row %d has TopK %d, NumTop %d, MinP %v, U %v", i, r.TopK, r.NumTop, r.MinP, r.U)
	}
	if !r.Greedy && !(r.TopP > 0 && r.TopP <= 1) {
		wrong(op, "row %d has TopP %v, want more than 0 and at most 1", i, r.TopP)
	}
	for _, b := range r.Bias {
		if b.ID < 0 || int(b.ID) >= vocab {
			wrong(op, "row %d: bias of token %d, want 0 to %d", i, b.ID, vocab-1)
		}
	}
	for _, id := range r.Banned {
		if id < 0 || int(id) >= vocab {
			wrong(op, "row %d: banned token %d, want 0 to %d", i, id, vocab-1)
		}
	}
}
