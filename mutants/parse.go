package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A mutant is one small fault: a text in one file, and its replacement.
type mutant struct {
	file, description string
	old, new          string
}

func (m mutant) String() string { return m.file + ": " + m.description }

const separator = "=====" // between the old text and the new text

var comment = regexp.MustCompile(`(?m)^#.*\n?`)

// parse reads a list of mutants. A block is a header, the old text, a separator and the new text,
// which may be empty. Lines that begin with # are comments.
func parse(text string) (mutants []mutant, err error) {
	blocks := strings.Split("\n"+comment.ReplaceAllString(text, ""), "\n@@ ")
	if before := strings.TrimSpace(blocks[0]); before != "" {
		return nil, fmt.Errorf("mutants: a text before the first block: %q", before)
	}
	for _, block := range blocks[1:] {
		m, err := parseBlock(block)
		if err != nil {
			return nil, err
		}
		mutants = append(mutants, m)
	}
	return mutants, nil
}

func parseBlock(block string) (m mutant, err error) {
	header, texts, _ := strings.Cut(block, "\n")
	file, description, ok := strings.Cut(header, ": ")
	if !ok || file == "" || description == "" {
		return m, fmt.Errorf("mutants: %q is not a file and a description", header)
	}
	before, after, ok := strings.Cut("\n"+texts+"\n", "\n"+separator+"\n")
	if !ok {
		return m, fmt.Errorf("mutants: %s: no line %s", header, separator)
	}
	m = mutant{file, description, strings.TrimSpace(before), strings.TrimSpace(after)}
	switch {
	case m.old == "":
		return m, fmt.Errorf("mutants: %s: no old text", header)
	case m.old == m.new:
		return m, fmt.Errorf("mutants: %s: the texts are the same", header)
	}
	return m, nil
}

var (
	errNotFound = errors.New("the old text does not occur")
	errTwice    = errors.New("the old text occurs more than once")
)

// apply returns a source with the fault in it. The old text must occur exactly once.
func (m mutant) apply(source string) (string, error) {
	switch strings.Count(source, m.old) {
	case 0:
		return "", fmt.Errorf("mutants: %v: %w", m, errNotFound)
	case 1:
		return strings.Replace(source, m.old, m.new, 1), nil
	default:
		return "", fmt.Errorf("mutants: %v: %w", m, errTwice)
	}
}
