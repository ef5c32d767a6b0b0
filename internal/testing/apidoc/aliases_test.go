package apidoc_test

import (
	"go/ast"
	"go/doc"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAnAliasLeadsToItsFields reads the documentation as go doc shows it: the comment of an alias
// has the command that shows the fields, and package reap has them.
func TestAnAliasLeadsToItsFields(t *testing.T) {
	docs := make(map[string]string) // of package reap, by the name of the type
	for _, typ := range load(t, filepath.Join("..", "..", "..", "reap")).Types {
		docs[typ.Name] = typ.Doc
	}
	for _, front := range []string{"idle", "idlenet"} {
		aliases := 0
		for _, typ := range load(t, filepath.Join("..", "..", "..", front)).Types {
			if of := aliasOf(typ); of != "" {
				aliases++
				require.Regexp(t, `go doc github\.com/idlewheel/idlewheel/reap\.`+of+`$`, strings.TrimSpace(typ.Doc), "%s.%s", front, typ.Name)
				require.NotEmpty(t, docs[of], "%s.%s is reap.%s", front, typ.Name, of)
			}
		}
		require.Greater(t, aliases, 10, front)
	}
}

// aliasOf returns the type of another package that a type is an alias of, or an empty string.
func aliasOf(typ *doc.Type) string {
	for _, spec := range typ.Decl.Specs {
		s := spec.(*ast.TypeSpec)
		if of, ok := s.Type.(*ast.SelectorExpr); ok && s.Assign.IsValid() && s.Name.Name == typ.Name {
			return of.Sel.Name
		}
	}
	return ""
}
