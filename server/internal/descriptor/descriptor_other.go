//go:build !unix

package descriptor

// Limit returns 0: this system has no such limit.
func Limit() (int, error) { return 0, nil }

// InUse returns 0 and true: the number is not known.
func InUse() (int, bool) { return 0, true }

// LowestFree returns 0 and true: there is always a free descriptor.
func LowestFree() (int, bool) { return 0, true }
