// Package kernelstest is the conformance suite of kernels.Backend. Run compares every operation with
// kernels/ref on odd and even shapes, and checks the properties that sampling and training rest on:
// the row law, bit for bit; the same bits run to run and whatever the strides; nothing written
// outside of the outputs, inputs left alone; log-probs of Sample equal to those of LogProbs.
// RunGradients compares every backward with central differences of the exact forward.
//
// Every operation is a scene: code that makes inputs in a Lab, calls the backend and reports the
// results. The suite runs a scene on ref and several times on the backend, with other strides and
// with the rows split into other calls, always from the same seed.
//
// The Lab, Batch and the random weights are exported: tests of rooms above use them too. The
// package knows operations; it may not know models or any backend but ref. It has no state.
package kernelstest
