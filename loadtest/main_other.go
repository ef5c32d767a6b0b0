//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "loadtest: it runs on Linux: it waits for many thousand connections with epoll")
	os.Exit(3)
}
