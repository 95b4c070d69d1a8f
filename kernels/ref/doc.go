// Package ref is the specification of every operation of kernels.Backend, and the oracle that the
// other backends are tested against: naive loops, one accumulation at a time in float64, nothing
// fused and nothing reordered.
//
// Each operation is first a generic function over the storage type: with float32 storage it is the
// operation of the Backend in this package; with float64 storage it is the exact forward that
// finite differences need. Storage rounds, arithmetic does not: every value is widened to float64,
// computed, and rounded once when it is stored. Gradients of parameters are the exception that the
// interface asks for: they grow by one stored addition a row, in ascending row order, so that a
// batch that is split gives the same bits as one that is not.
//
// The package knows shapes and formats; it may not know models, files or losses, and it is slow on
// purpose. Its Backend keeps memory on Go's heap, packs weights by not packing them, and holds no
// state but the error that Sync tells. Products are written float64(a*b) where a sum follows, so
// that no compiler fuses them, and exponentials are libm's: the bits are the same on every platform.
package ref
