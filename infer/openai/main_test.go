package openai

import (
	"os"
	"runtime"
	"testing"
)

// TestMain gives the tests a second thread at least: they watch an engine that computes without a pause, and on
// a single one Go lets them look some ten milliseconds later, when a request may be over.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	os.Exit(m.Run())
}
