package kernelstest

import (
	"testing"

	"graft/kernels/ref"
)

func TestRefPasses(t *testing.T) { Run(t, ref.New()) }

func TestRefGradients(t *testing.T) { RunGradients(t, ref.New()) }
