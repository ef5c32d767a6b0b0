//go:build !amd64 && !arm64

package wheel

import "unsafe"

// prefetch does nothing where Go has no instruction for it.
func prefetch(*[blockIDs]uint32, *block[uint32], unsafe.Pointer, uintptr) {}
