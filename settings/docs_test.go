package settings_test

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/setting"
	"github.com/idlewheel/idlewheel/server"
)

// TestTheTablesOfTheDocumentationAreTheTablesOfTheCode compares docs/operating.md with the tables
// of settings.
func TestTheTablesOfTheDocumentationAreTheTablesOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	for name, want := range map[string]string{
		"settings":        markdown(setting.Idle, "idle.Config", new(idle.Config)),
		"server settings": markdown(setting.Server, "server.Config", new(server.Config)),
	} {
		_, rest, found := strings.Cut(string(text), "<!-- "+name+" -->\n")
		got, _, ended := strings.Cut(rest, "<!-- end of "+name+" -->\n")
		require.True(t, found && ended, "docs/operating.md has no table of %s", name)
		if got != want {
			t.Errorf("The table of %s in docs/operating.md is not the one in the code. Replace it by:\n%s", name, want)
		}
	}
}

// markdown returns a table of settings.
func markdown(table setting.Table, name string, cfg any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| setting | field of `%s` | value | 0 means | applies | what it does |\n|---|---|---|---|---|---|\n", name)
	for _, s := range table {
		value := cmp.Or(s.Unit(), "true or false")
		if r := s.Range(s.Of(cfg).Type()); r != "" {
			value += ", " + r
		}
		if s.Negative != "" {
			value += "; negative: " + s.Negative
		}
		applies := s.Scope.String()
		if s.Adjustable {
			applies += ", POST"
		}
		help := strings.NewReplacer("`", "", "\n", " ").Replace(s.Help)
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", s.Name, s.Field, value, s.Zero, applies, help)
	}
	return b.String()
}
