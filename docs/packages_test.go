package docs_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// importsOf returns the packages that go list prints with a template, by package. Names have no
// module path.
func importsOf(t *testing.T, template string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{join "+template+` " "}}`, "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	list := map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(string(out), modulePath+"/", "")) {
		names := strings.Fields(line)
		list[names[0]] = names[1:]
	}
	return list
}

// TestTheDiagramOfPackagesIsTrue compares the arrows in docs/README.md with the imports of the
// public packages and programs.
func TestTheDiagramOfPackagesIsTrue(t *testing.T) {
	drawn := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^    (\S+) +──▶ (.+)$`).FindAllStringSubmatch(readText(t, "docs", "README.md"), -1) {
		drawn[m[1]] = strings.Split(m[2], ", ")
		slices.Sort(drawn[m[1]])
	}
	all := importsOf(t, ".Imports")
	for name, imports := range all {
		imports = slices.DeleteFunc(imports, func(of string) bool {
			_, own := all[of]
			return !own || strings.Contains(of, "/")
		})
		assert.False(t, !strings.Contains(name, "internal") && !slices.Equal(imports, drawn[name]),
			"%s imports %v, and docs/README.md has %v", name, imports, drawn[name])
	}
	for name := range drawn {
		_, ok := all[name]
		assert.True(t, ok, "docs/README.md has the package %s, which does not exist", name)
	}
}

// TestPackagesLinkWhatTheDocumentsSay checks which packages link net/http and the client library of
// Prometheus.
func TestPackagesLinkWhatTheDocumentsSay(t *testing.T) {
	deps := importsOf(t, ".Deps")
	for name, http := range map[string]bool{
		"wheel": false, "timer": false, "sourcelimit": false, "reap": false, "idle": true, "idlenet": true,
	} {
		got := slices.Contains(deps[name], "net/http")
		assert.Equal(t, http, got, "%s links net/http: %v, want %v", name, got, http)
		assert.NotContains(t, deps[name], "github.com/prometheus/client_golang/prometheus", "%s links Prometheus", name)
	}
}
