package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const maxMapLines = 90

var (
	// placePattern finds a link and the text up to the next one.
	placePattern  = regexp.MustCompile(`\]\(([^)]+)\)([^\[]*)`)
	drawnPattern  = regexp.MustCompile(`\b[A-Za-z]\w*\.[A-Za-z]\w*\b`)
	goFilePattern = regexp.MustCompile(`[\w/]+\.go\b`)
)

// declared returns the names that a file of Go declares: name, Type.member, and package.name.
func declared(t testing.TB, path string) map[string]bool {
	t.Helper()
	s := newSymbols()
	of := s.addFile(t, path)
	all := map[string]bool{}
	for name := range s.names {
		all[name], all[of+"."+name] = true, true
	}
	for name, members := range s.members {
		for m := range members {
			all[name+"."+m] = true
		}
	}
	return all
}

// wrongPlaces returns what is wrong with the places in a row of the map.
func wrongPlaces(t testing.TB, row string) (list []string) {
	t.Helper()
	places := placePattern.FindAllStringSubmatch(row, -1)
	for _, m := range places {
		path := filepath.Join(root, "docs", filepath.FromSlash(m[1]))
		text, err := os.ReadFile(path)
		isGo := strings.HasSuffix(path, ".go")
		names := spanPattern.FindAllStringSubmatch(m[2], -1)
		switch {
		case err != nil:
			list = append(list, "no file "+m[1])
			continue
		case isGo && len(names) == 0:
			list = append(list, "no name in "+m[1])
		}
		for _, n := range names {
			if isGo && !declared(t, path)[n[1]] || !strings.Contains(string(text), n[1]) && !isGo {
				list = append(list, "no "+n[1]+" in "+m[1])
			}
		}
	}
	if len(places) == 0 && strings.Contains(row, "`") {
		list = append(list, "no link")
	}
	return list
}

// TestTheMapIsTrue looks up the names of docs/map.md: those of a row in its files, and those of the
// picture in the files that it names.
func TestTheMapIsTrue(t *testing.T) {
	d := readDocument(t, filepath.Join(root, "docs", "map.md"))
	if n := len(d.lines) - 1; n > maxMapLines {
		t.Errorf("%s has %d lines, want at most %d", d.path, n, maxMapLines)
	}
	known, drawn := map[string]bool{}, map[string]int{}
	for i, line := range d.lines {
		if strings.HasPrefix(line, "|") {
			for _, why := range wrongPlaces(t, line) {
				t.Errorf("%s:%d: %s", d.path, i+1, why)
			}
		}
		if !strings.HasPrefix(line, "    ") {
			continue
		}
		for _, file := range goFilePattern.FindAllString(line, -1) {
			for name := range declared(t, filepath.Join(root, filepath.FromSlash(file))) {
				known[name] = true
			}
		}
		for _, name := range drawnPattern.FindAllString(goFilePattern.ReplaceAllString(line, ""), -1) {
			drawn[name] = i + 1
		}
	}
	if len(drawn) == 0 {
		t.Error("no picture")
	}
	for name, line := range drawn {
		if !known[name] {
			t.Errorf("%s:%d: no file of the picture declares %s", d.path, line, name)
		}
	}
}

func TestWrongPlacesAreFound(t *testing.T) {
	const idle = "[idle/reaper.go](../idle/reaper.go)"
	for row, want := range map[string]string{
		"| a | " + idle + " `Reaper.OnOpen`, `Middleware`; [b](../Makefile) `lint`, [c](metrics.md) |": "[]",

		"| a | " + idle + " |":                     "[no name in ../idle/reaper.go]",
		"| a | " + idle + " `Reaper.Inspect` |":    "[no Reaper.Inspect in ../idle/reaper.go]",
		"| a | " + idle + " [b](x.go) `b` |":       "[no name in ../idle/reaper.go no file x.go]",
		"| a | [b](../Makefile) `lint`, `lunch` |": "[no lunch in ../Makefile]",
		"| a | idle/reaper.go `Reaper` |":          "[no link]",
	} {
		if got := fmt.Sprint(wrongPlaces(t, row)); got != want {
			t.Errorf("%s: got %s, want %s", row, got, want)
		}
	}
}

// TestTestsOfIdleAreNamedAfterFiles checks what the last row of the map says.
func TestTestsOfIdleAreNamedAfterFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "idle", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	known := map[string]bool{"bench": true, "example": true, "main": true, "sim": true}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".go"); !strings.HasSuffix(name, "_test") {
			known[name] = true
		}
	}
	for _, f := range files {
		name, isTest := strings.CutSuffix(filepath.Base(f), "_test.go")
		subject, _, _ := strings.Cut(name, "_")
		if isTest && !known[subject] && !strings.HasSuffix(strings.TrimSuffix(name, "_linux"), "_helper") {
			t.Errorf("%s is named after no file of package idle", f)
		}
	}
}
