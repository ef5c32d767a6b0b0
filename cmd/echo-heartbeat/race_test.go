//go:build race

package main

// raceDetector says that the server takes several times the memory of the program.
const raceDetector = true
