//go:build !amd64 && !arm64

package wheel

import "unsafe"

// prefetch does nothing on processors without assembly for it.
func prefetch(*[blockIDs]uint32, *block[uint32], unsafe.Pointer, uintptr) {}
