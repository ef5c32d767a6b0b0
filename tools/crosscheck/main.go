// Command crosscheck checks the types of all packages and tests of the root module for systems.
//
//	go -C tools run ./crosscheck darwin/arm64 linux/386
//
// Go vet finds more, but compiles all dependencies for each system, which takes minutes.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	for _, system := range os.Args[1:] {
		if err := check(system); err != nil {
			fmt.Fprintf(os.Stderr, "crosscheck: %s: %v\n", system, err)
			os.Exit(1)
		}
	}
}

// check prints the errors for a system.
func check(system string) error {
	goos, goarch, _ := strings.Cut(system, "/")
	all, err := packages.Load(&packages.Config{
		Mode:  packages.LoadAllSyntax,
		Dir:   "..",
		Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		Tests: true,
	}, "./...")
	if err != nil {
		return err
	}
	if n := packages.PrintErrors(all); n > 0 {
		return fmt.Errorf("%d errors", n)
	}
	fmt.Printf("%s: %d packages\n", system, len(all))
	return nil
}
