package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"graft/kernels/cpu"
	"graft/kernels/cpu/vec"
	"graft/kernels/quant"
)

// Roof is what the machine can do at best, with all threads of the comparison.
type Roof struct {
	GBs    float64  `json:"read_gb_per_s"`
	GFLOPS float64  `json:"fma_gflop_per_s"`
	Kernel string   `json:"kernel"`      // instruction set of the FMA figure
	Others *float64 `json:"other_cores"` // load of other processes meanwhile
}

// measureRoof measures in a child, which runs on the cores of the comparison.
func measureRoof(ctx context.Context, opt *options) (Roof, error) {
	var roof Roof
	w := startWatch()
	state, err := job{Row: row{Kind: kindRoof}, Threads: opt.threads}.do(ctx, &roof)
	if err != nil {
		return roof, fmt.Errorf("the roof: %w", err)
	}
	roof.Others = w.others(cpuTime(state))
	return roof, nil
}

// Each figure is the best of several tries of a fixed length: a roof is a maximum.
const (
	roofTries = 6
	roofTry   = 150 * time.Millisecond
)

func runRoof(threads int) (*Roof, error) {
	k := vec.For(vec.Supported()[0])
	roof := &Roof{Kernel: k.ISA.String(), GFLOPS: peakFLOPS(k, threads)}
	var err error
	roof.GBs, err = bandwidth(k, threads)
	return roof, err
}

// best runs f, made once for each thread, on all threads again and again, and returns the highest
// rate of one try: the sum of what all calls returned over the time that they took.
func best(threads int, f func(thread int) func() float64) float64 {
	calls := make([]func() float64, threads)
	for i := range calls {
		calls[i] = f(i)
	}
	var rates []float64
	for range roofTries {
		done := make([]float64, threads)
		var group sync.WaitGroup
		begin := time.Now()
		for i := range calls {
			group.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for time.Since(begin) < roofTry {
					done[i] += calls[i]()
				}
			})
		}
		group.Wait()
		sum := 0.0
		for _, d := range done {
			sum += d
		}
		rates = append(rates, sum/time.Since(begin).Seconds())
	}
	return slices.Max(rates)
}

// bandwidth is the rate at which all threads together read memory far larger than the caches, in
// GB/s: the better of two ways to read.
func bandwidth(k *vec.Kernels, threads int) (float64, error) {
	const size = 256 << 20
	be := cpu.New(cpu.Options{Threads: 1})
	defer be.Close()
	mem, err := be.Alloc(int64(threads) * size)
	if err != nil {
		return 0, err
	}
	defer be.Free(mem)
	for i := 0; i < len(mem.Host); i += 4096 {
		mem.Host[i] = 1 // a page that was never written is one page of zeros for all
	}
	rate := 0.0
	for _, reader := range []func() (piece int, read func([]byte)){searcher, func() (int, func([]byte)) { return multiplier(k) }} {
		rate = max(rate, best(threads, func(thread int) func() float64 {
			mine, at := mem.Host[thread*size:(thread+1)*size], 0
			piece, read := reader()
			return func() float64 {
				if at+piece > size {
					at = 0
				}
				read(mine[at : at+piece])
				at += piece
				return float64(piece)
			}
		}))
	}
	return rate / 1e9, nil
}

// searcher reads by the standard library's vectorised search for a byte that is not there.
func searcher() (piece int, read func([]byte)) {
	return 1 << 20, func(p []byte) {
		if bytes.IndexByte(p, 2) >= 0 {
			panic("bench: a byte that was never written")
		}
	}
}

// multiplier reads as the decoding of one row does, by the product's own loop, which asks for memory
// ahead: on processors that fetch little ahead by themselves, and beside neighbours, it reads more.
func multiplier(k *vec.Kernels) (piece int, read func([]byte)) {
	const in, panels = 4096, 16
	panel := vec.PanelBytes(quant.Q8_0, in)
	x, y := make([]quant.ActivationBlock, in/quant.ActivationLen), make([]float32, panels*vec.Lanes)
	g := &vec.Gemm8Args{X: unsafe.Pointer(&x[0]), Y: unsafe.Pointer(&y[0]), K: in, P: panels, PanelBytes: int64(panel), M: 1, YRow: panels * vec.Lanes}
	return panels * panel, func(p []byte) {
		g.W = unsafe.Pointer(&p[0])
		k.Gemm8[quant.Q8_0](g)
	}
}

// peakFLOPS is the rate of the product's own tile product on operands that stay in the first-level
// cache, in GFLOP/s: the best over a few shapes.
func peakFLOPS(k *vec.Kernels, threads int) float64 {
	peak := 0.0
	for _, shape := range []struct{ m, p, k int }{{24, 1, 128}, {24, 2, 96}, {48, 1, 128}, {48, 2, 64}} {
		peak = max(peak, best(threads, func(int) func() float64 {
			a, b, c := make([]float32, shape.m*shape.k), make([]float32, 16*shape.p*shape.k), make([]float32, 16*shape.p*shape.m)
			for i := range a {
				a[i] = 1
			}
			g := &vec.GemmArgs{A: unsafe.Pointer(&a[0]), B: unsafe.Pointer(&b[0]), C: unsafe.Pointer(&c[0]),
				ARow: int64(shape.k), ARed: 1, BPanel: int64(16 * shape.k), BRed: 16, CRow: int64(16 * shape.p), CPanel: 16,
				M: int64(shape.m), P: int64(shape.p), K: int64(shape.k)}
			flops := float64(2 * 16 * shape.m * shape.p * shape.k)
			return func() float64 {
				for range 64 {
					k.Gemm(g)
				}
				return 64 * flops
			}
		}))
	}
	return peak / 1e9
}
