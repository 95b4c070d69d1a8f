package kernelstest

import (
	"testing"

	"graft/kernels"
	"graft/kernels/ref"
)

// Checked must let everything pass that the suite asks, and ref must pass it.
func TestRefPasses(t *testing.T) { Run(t, kernels.Checked(ref.New())) }

func TestRefGradients(t *testing.T) { RunGradients(t, kernels.Checked(ref.New())) }
