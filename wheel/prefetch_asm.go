//go:build amd64 || arm64

package wheel

import "unsafe"

// prefetch asks for the entries of some ids, and for a block. Pieces is the address of the first pointer to
// a slab, size that of a pair. Unlike a read, it does not hold up what comes after it: one read of each would cost as
// much as all other work of expiry at a million entries (measured: 26 against 13 ns to fire, 31 against 17 to file anew).
//
//go:noescape
func prefetch(ids *[blockIDs]uint32, ahead *block[uint32], pieces unsafe.Pointer, size uintptr)

// The assembly has these two numbers in it: what differs from them does not compile.
const (
	_ = uint(blockIDs-15) + uint(15-blockIDs)
	_ = uint(slabPairs-512) + uint(512-slabPairs)
)
