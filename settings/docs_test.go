package settings_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/server"
)

var update = flag.Bool("update", false, "write the tables of settings into docs/settings.md and docs/limits.md")

// TestTheTablesOfTheDocumentationAreTheTablesOfTheCode compares the tables of documents with the
// tables of settings. To write them, run go test ./settings -update.
func TestTheTablesOfTheDocumentationAreTheTablesOfTheCode(t *testing.T) {
	for page, tables := range map[string]map[string]string{
		"../docs/settings.md": {
			"settings":        markdown(configtable.Idle, "idle.Config", new(idle.Config)),
			"net settings":    netMarkdown(),
			"server settings": markdown(configtable.Server, "server.Config", new(server.Config)),
		},
		"../docs/limits.md": {"limits": limitsMarkdown()},
	} {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		text := string(b)
		for name, want := range tables {
			before, rest, found := strings.Cut(text, "<!-- "+name+" -->\n")
			got, after, ended := strings.Cut(rest, "<!-- end of "+name+" -->\n")
			require.True(t, found && ended, "%s has no table of %s", page, name)
			if *update {
				text = before + "<!-- " + name + " -->\n" + want + "<!-- end of " + name + " -->\n" + after
			} else if got != want {
				t.Errorf("The table of %s in %s is not the one in the code: run go test ./settings -update", name, page)
			}
		}
		if *update {
			require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
		}
	}
}

// limitsMarkdown returns a table of the limits with a reason.
func limitsMarkdown() string {
	var b strings.Builder
	b.WriteString("| field | what the limit does | reason |\n|---|---|---|\n")
	for _, s := range append(slices.Clone(configtable.Idle), ownOfNet()...) {
		if s.Reason != 0 {
			fmt.Fprintf(&b, "| `%s`%s | %s | %v |\n", s.Field, onlyIn(s), helpOf(s), s.Reason)
		}
	}
	return b.String()
}

// onlyIn names the package of a setting that only one of two packages has.
func onlyIn(s configtable.Setting) string {
	switch {
	case !slices.Contains(configtable.Net, s):
		return " (idle)"
	case !slices.Contains(configtable.Idle, s):
		return " (idlenet)"
	}
	return ""
}

// helpOf returns the help of a setting in one line.
func helpOf(s configtable.Setting) string {
	return strings.NewReplacer("`", "", "\n", " ").Replace(s.Help)
}

// ownOfNet returns the settings of idlenet.Config that are not those of idle.Config.
func ownOfNet() configtable.Table {
	return slices.DeleteFunc(slices.Clone(configtable.Net), func(s configtable.Setting) bool { return slices.Contains(configtable.Idle, s) })
}

// netMarkdown returns a table of the settings of idlenet.Config that are not those of idle.Config,
// and names the settings that only idle.Config has.
func netMarkdown() string {
	var missing []string
	for _, name := range configtable.Idle.Names() {
		if !slices.Contains(configtable.Net.Names(), name) {
			missing = append(missing, "`"+name+"`")
		}
	}
	return fmt.Sprintf("`idlenet.Config` has the settings of the table above in the same fields, except\n%s.\n"+
		"The settings below are its own, or have another rule:\n\n%s",
		strings.Join(missing, ", "), markdown(ownOfNet(), "idlenet.Config", new(idlenet.Config)))
}

// markdown returns a table of settings.
func markdown(table configtable.Table, name string, cfg any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| setting | field of `%s` | value | 0 means | applies | what it does |\n|---|---|---|---|---|---|\n", name)
	for _, s := range table {
		unit, _ := flag.UnquoteUsage(&flag.Flag{Usage: s.Help, Value: s.Value(cfg)})
		value := cmp.Or(unit, "true or false")
		if r := s.Range(s.Of(cfg).Type()); r != "" {
			value += ", " + r
		}
		if s.Negative != "" {
			value += "; negative: " + s.Negative
		}
		applies := "at reload"
		field, _, _ := strings.Cut(s.Field, ".")
		if _, own := reflect.TypeFor[reap.ConnLimits]().FieldByName(field); s.AtStart {
			applies = "at start"
		} else if own {
			applies += ", per connection"
		}
		if s.Adjustable {
			applies += ", POST"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", s.Name, s.Field, value, s.ZeroText(), applies, helpOf(s))
	}
	return b.String()
}
