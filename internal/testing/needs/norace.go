//go:build !race

package needs

// slow says that the race detector makes the tests several times slower.
const slow = false
