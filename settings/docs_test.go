package settings_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/setting"
)

// TestTheTableOfTheDocumentationIsTheTableOfTheCode compares docs/operating.md with the table of
// settings.
func TestTheTableOfTheDocumentationIsTheTableOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "<!-- settings -->\n")
	got, _, ended := strings.Cut(rest, "<!-- end of settings -->\n")
	require.True(t, found && ended, "docs/operating.md has no table of settings")
	if want := markdown(); got != want {
		t.Errorf("The table of settings in docs/operating.md is not the one in the code. Replace it by:\n%s", want)
	}
}

// markdown returns the table of settings.
func markdown() string {
	var b strings.Builder
	b.WriteString("| setting | field of `idle.Config` | value | 0 means | applies | what it does |\n|---|---|---|---|---|---|\n")
	for s := range setting.All() {
		value := "true or false"
		if unit := s.Unit(); unit != "" {
			value = unit + ", " + s.Range(s.Of(new(idle.Config)).Type())
		}
		if s.Negative != "" {
			value += "; negative: " + s.Negative
		}
		applies := s.Scope.String()
		if s.Adjustable {
			applies += ", POST"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n",
			s.Name, s.Field, value, s.Zero, applies, strings.ReplaceAll(s.Help, "`", ""))
	}
	return b.String()
}
