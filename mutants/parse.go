package main

import (
	"errors"
	"fmt"
	"strings"
)

// A mutant is one small fault: a text in one file, and its replacement.
type mutant struct {
	file, description string
	old, new          string
}

const (
	header    = "@@ "   // file: description
	separator = "=====" // between the old text and the new text
	comment   = "#"
)

// parse reads a list of mutants. A block is a header, the old text, a separator and the new text,
// which may be empty. Lines that begin with # are comments.
func parse(text string) (mutants []mutant, err error) {
	var block []string
	end := func() error {
		if block == nil {
			return nil
		}
		m, err := parseBlock(block)
		mutants = append(mutants, m)
		return err
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, comment):
		case strings.HasPrefix(line, header):
			if err := end(); err != nil {
				return nil, err
			}
			block = []string{strings.TrimPrefix(line, header)}
		case block != nil:
			block = append(block, line)
		case strings.TrimSpace(line) != "":
			return nil, fmt.Errorf("mutants: a text before the first block: %q", line)
		}
	}
	return mutants, end()
}

func parseBlock(lines []string) (m mutant, err error) {
	file, description, ok := strings.Cut(lines[0], ": ")
	if !ok || file == "" || description == "" {
		return m, fmt.Errorf("mutants: %q is not a file and a description", lines[0])
	}
	before, after, ok := strings.Cut("\n"+strings.Join(lines[1:], "\n")+"\n", "\n"+separator+"\n")
	if !ok {
		return m, fmt.Errorf("mutants: %s: no line %s", lines[0], separator)
	}
	m = mutant{file, description, strings.TrimSpace(before), strings.TrimSpace(after)}
	switch {
	case m.old == "":
		return m, fmt.Errorf("mutants: %s: no old text", lines[0])
	case m.old == m.new:
		return m, fmt.Errorf("mutants: %s: the texts are the same", lines[0])
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
		return "", fmt.Errorf("mutants: %s: %s: %w", m.file, m.description, errNotFound)
	case 1:
		return strings.Replace(source, m.old, m.new, 1), nil
	default:
		return "", fmt.Errorf("mutants: %s: %s: %w", m.file, m.description, errTwice)
	}
}
