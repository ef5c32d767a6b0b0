//go:build race

package server

// raceDetector says that the test runs several times slower than the program.
const raceDetector = true
