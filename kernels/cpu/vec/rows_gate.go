package vec

import "unsafe"

// SwiGLUArgs describes Y = silu(G)·U, silu(g) = g·σ(g).
type SwiGLUArgs struct {
	Y, G, U unsafe.Pointer // [N] float32
	N       int64
}

// SwiGLUBackwardArgs describes the gradients of Y = silu(G)·U. With s = σ(G):
//
//	DU = DY·(G·s)
//	DG = (DY·U)·(s·fma(G, 1−s, 1))
type SwiGLUBackwardArgs struct {
	DG, DU, G, U, DY unsafe.Pointer // [N] float32
	N                int64
}

// GeGLUArgs describes Y = gelu(G)·U with the tanh form of gelu, g·σ(z(g)) where
// z = geluScale·fma(0.044715·(g·g), g, g).
type GeGLUArgs struct {
	Y, G, U unsafe.Pointer // [N] float32
	N       int64
}

// GeGLUBackwardArgs describes the gradients of Y = gelu(G)·U. With s = σ(z(G))
// and z' = geluScale·fma(3·0.044715, G·G, 1):
//
//	DU = DY·(G·s)
//	DG = (DY·U)·(s·fma(G·(1−s), z', 1))
type GeGLUBackwardArgs struct {
	DG, DU, G, U, DY unsafe.Pointer // [N] float32
	N                int64
}

// swiGLUGeneric is SwiGLU in Go.
func swiGLUGeneric(args *SwiGLUArgs) {
	y, g, u := floats(args.Y, args.N), floats(args.G, args.N), floats(args.U, args.N)
	for i := range y {
		y[i] = float32(SiLU(g[i]) * u[i])
	}
}

// swiGLUBackwardGeneric is SwiGLUBackward in Go.
func swiGLUBackwardGeneric(args *SwiGLUBackwardArgs) {
	dg, du := floats(args.DG, args.N), floats(args.DU, args.N)
	g, u, dy := floats(args.G, args.N), floats(args.U, args.N), floats(args.DY, args.N)
	for i := range dg {
		gi, ui, di := g[i], u[i], dy[i]
		s := Sigmoid(gi)
		slope := float32(s * fma32(gi, 1-s, 1))
		du[i] = float32(di * float32(gi*s))
		dg[i] = float32(float32(di*ui) * slope)
	}
}

// geGLUGeneric is GeGLU in Go.
func geGLUGeneric(args *GeGLUArgs) {
	y, g, u := floats(args.Y, args.N), floats(args.G, args.N), floats(args.U, args.N)
	for i := range y {
		y[i] = float32(GELU(g[i]) * u[i])
	}
}

// geGLUBackwardGeneric is GeGLUBackward in Go.
func geGLUBackwardGeneric(args *GeGLUBackwardArgs) {
	dg, du := floats(args.DG, args.N), floats(args.DU, args.N)
	g, u, dy := floats(args.G, args.N), floats(args.U, args.N), floats(args.DY, args.N)
	for i := range dg {
		gi, ui, di := g[i], u[i], dy[i]
		s := geluGate(gi)
		dz := float32(geluScale * fma32(3*geluCube, float32(gi*gi), 1))
		slope := float32(s * fma32(float32(gi*(1-s)), dz, 1))
		du[i] = float32(di * float32(gi*s))
		dg[i] = float32(float32(di*ui) * slope)
	}
}
