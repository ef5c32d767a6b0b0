package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A mutant is one small fault: a text in one file, and its replacement.
type mutant struct {
	file, description string
	old, new          string
}

func (m mutant) String() string { return m.file + ": " + m.description }

var comment = regexp.MustCompile(`(?m)^#.*\n?`)

// parse reads a list of mutants. A block is a header, the old text, a separator and the new text,
// which may be empty. Lines that begin with # are comments.
func parse(text string) (mutants []mutant, err error) {
	blocks := strings.Split("\n"+comment.ReplaceAllString(text, ""), "\n@@ ")
	if before := strings.TrimSpace(blocks[0]); before != "" {
		return nil, fmt.Errorf("a text before the first block: %q", before)
	}
	for _, block := range blocks[1:] {
		header, texts, _ := strings.Cut(block, "\n")
		file, description, _ := strings.Cut(header, ": ")
		before, after, divided := strings.Cut("\n"+texts+"\n", "\n=====\n")
		m := mutant{file, description, strings.TrimSpace(before), strings.TrimSpace(after)}
		switch {
		case file == "" || description == "":
			return nil, fmt.Errorf("%q is not a file and a description", header)
		case !divided:
			return nil, fmt.Errorf("%s: no line =====", header)
		case m.old == "":
			return nil, fmt.Errorf("%s: no old text", header)
		case m.old == m.new:
			return nil, fmt.Errorf("%s: the texts are the same", header)
		}
		mutants = append(mutants, m)
	}
	return mutants, nil
}

// apply returns a source with the fault in it. The old text must occur exactly once.
func (m mutant) apply(source string) (string, error) {
	if n := strings.Count(source, m.old); n != 1 {
		return "", fmt.Errorf("the old text occurs %d times, must occur once", n)
	}
	return strings.Replace(source, m.old, m.new, 1), nil
}

// mutate returns the source of the file in a repository, without and with the fault.
func (m mutant) mutate(root string) (original, changed string, err error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err == nil {
		changed, err = m.apply(string(source))
	}
	if err != nil {
		err = fmt.Errorf("%v: %w", m, err)
	}
	return string(source), changed, err
}
