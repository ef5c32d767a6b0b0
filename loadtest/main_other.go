//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "loadtest: only Linux is supported, because it uses epoll")
	os.Exit(3)
}
