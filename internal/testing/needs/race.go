//go:build race

package needs

// RaceDetector says that the race detector makes the tests several times slower, and larger.
const RaceDetector = true
