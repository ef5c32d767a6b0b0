// Package mutant makes one change of a program, chosen by its environment, and records which
// changes the program reaches. Command sample adds it to the packages that it changes.
package mutant

import (
	"cmp"
	"os"
	"strconv"
	"syscall"
)

const (
	Number  = "MUTANT"         // environment variable: number of the change that is made
	Reached = "MUTANT_REACHED" // environment variable: file of Max bytes, one per change
	Max     = 1 << 15          // changes
)

var (
	made, _ = strconv.Atoi(cmp.Or(os.Getenv(Number), "-1"))
	reached = file() // of all processes of a test, also of those that are killed
)

func file() []byte {
	fd, err := syscall.Open(os.Getenv(Reached), syscall.O_RDWR, 0)
	if err != nil {
		return make([]byte, Max)
	}
	defer syscall.Close(fd)
	b, err := syscall.Mmap(fd, 0, Max, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return b
}

// Is reports whether change n is made.
func Is(n int) bool {
	reached[n] = 1
	return n == made
}

// Cond returns a condition, which change n makes true and change n+1 makes false.
func Cond(n int, c bool) bool {
	if c {
		return !Is(n + 1)
	}
	return Is(n)
}
