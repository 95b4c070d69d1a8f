package cpu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels/cpu/vec"
	"graft/kernels/kernelstest"
)

// each runs a test on every instruction set of this machine with some numbers of threads.
func each(t *testing.T, threads []int, f func(t *testing.T, b *Backend)) {
	for _, isa := range vec.Supported() {
		for _, n := range threads {
			t.Run(fmt.Sprintf("%v/threads=%d", isa, n), func(t *testing.T) {
				b := New(Options{Threads: n, Kernels: vec.For(isa)})
				defer func() { require.NoError(t, b.Close()) }()
				f(t, b)
			})
		}
	}
}

func TestConformance(t *testing.T) {
	each(t, []int{3}, func(t *testing.T, b *Backend) { kernelstest.Run(t, b) })
}

func TestGradientsAreDifferences(t *testing.T) {
	each(t, []int{2}, func(t *testing.T, b *Backend) { kernelstest.RunGradients(t, b) })
}
