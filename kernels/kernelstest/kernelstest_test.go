package kernelstest

import (
	"testing"

	"graft/kernels/ref"
)

func TestRefPasses(t *testing.T) { Run(t, ref.New()) }
