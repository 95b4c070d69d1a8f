package vec

import "unsafe"

// f32x16 returns the lanes at element i of the float32 array at p.
func f32x16(p unsafe.Pointer, i int64) *[Lanes]float32 {
	return (*[Lanes]float32)(unsafe.Add(p, 4*i))
}

func gemmGeneric(g *GemmArgs) {
	for i := range g.M {
		for p := range g.P {
			c := f32x16(g.C, i*g.CRow+p*g.CPanel)
			var acc [Lanes]float32
			if g.Keep != 0 {
				acc = *c
			}
			a, b := unsafe.Add(g.A, 4*i*g.ARow), unsafe.Add(g.B, 4*p*g.BPanel)
			for r := range g.K {
				fmaLanes(&acc, *(*float32)(unsafe.Add(a, 4*r*g.ARed)), f32x16(b, r*g.BRed))
			}
			*c = acc
		}
	}
}

func transpose16Generic(t *TransposeArgs) {
	for i := range Lanes * t.N {
		src := f32x16(t.Src, i*t.SrcRow)
		for j, v := range src {
			*(*float32)(unsafe.Add(t.Dst, 4*(int64(j)*t.DstRow+i))) = v
		}
	}
}
