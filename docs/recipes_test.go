package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEachRecipeHasAProgram compares the programs in docs/recipes.md with the folders of examples/.
func TestEachRecipeHasAProgram(t *testing.T) {
	if _, err := os.Stat(filepath.Join(root, "examples")); os.IsNotExist(err) {
		t.Skip("there is no module of examples")
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`go -C examples run ./([a-z-]+)`").FindAllStringSubmatch(readText(t, "docs", "recipes.md"), -1) {
		named[m[1]] = true
		if _, err := os.Stat(filepath.Join(root, "examples", m[1], "main.go")); err != nil {
			t.Errorf("docs/recipes.md runs a program that does not exist: %v", err)
		}
	}
	programs, err := filepath.Glob(filepath.Join(root, "examples", "*", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range programs {
		if name := filepath.Base(filepath.Dir(path)); !named[name] {
			t.Errorf("docs/recipes.md does not have the program %s", name)
		}
	}
}
