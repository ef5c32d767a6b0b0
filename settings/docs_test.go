package settings_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/bits"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
	for name, want := range map[string]string{"settings": settingsMarkdown(), "limits": limitsMarkdown()} {
		page := "../docs/" + name + ".md"
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		before, rest, found := strings.Cut(string(text), "<!-- "+name+" -->\n")
		got, after, ended := strings.Cut(rest, "<!-- end of "+name+" -->\n")
		require.True(t, found && ended, "%s has no table of %s", page, name)
		if *update {
			all := before + "<!-- " + name + " -->\n" + want + "<!-- end of " + name + " -->\n" + after
			require.NoError(t, os.WriteFile(page, []byte(all), 0o644))
		} else if got != want {
			t.Errorf("The table of %s in %s is not the one in the code: run go test ./settings -update", name, page)
		}
	}
}

// advice has the value to begin with and a note for limits of docs/limits.md.
var advice = map[string]struct{ value, note string }{
	"ReadTimeout":            {"[the rule](#the-rule)", "the peer sends nothing"},
	"WriteTimeout":           {"", "nothing is sent to the peer. It only counts, unless `OnIdle` closes"},
	"AllTimeout":             {"", "neither side sends anything. Your own output keeps a dead peer open"},
	"FirstByteTimeout":       {"5 to 30 s", "no byte comes: port scanners, health checks. Off if the server speaks first"},
	"HandshakeTimeout":       {"10 s", "the login takes longer; bytes do not extend it. Call `conn.Ready()` at its end"},
	"WriteStallTimeout":      {"30 s or more", "the peer takes none of its output, a *stall*. Slow radio links look like that below 30 s"},
	"OutputLimit.Hard":       {"1 MiB, what the slowest client reads in ten seconds", "more output waits: [memory](run.md#memory-in-one-formula)"},
	"OutputLimit.Soft":       {"a quarter of it, `SoftFor` 30 s", "the same for longer than `SoftFor`"},
	"OutputLimit.Total":      {"package server sets it", "the output of all together is larger: the largest are reset"},
	"MinRate.BytesPerSecond": {"100", "a message comes byte by byte (slowloris). Call `conn.BeginMessage()` and `conn.EndMessage()`"},
	"Heartbeat.Interval":     {"[the rule](#the-rule)", "the peer answers no ping"},
	"MaxAge":                 {"an hour to a day, `MaxAgeGrace` 30 s", "it has this age, ±10 %: connections move to new servers"},
	"MaxConnections":         {"package server sets it", "others need room: it *sheds* the longest idle"},
	"HalfClosedTimeout":      {"", "the peer has sent FIN, and the server has not closed"},
}

// limitsMarkdown returns a table of the limits with a reason.
func limitsMarkdown() string {
	var b strings.Builder
	b.WriteString("| field | reason | begin with | closes a connection when |\n|---|---|---|---|\n")
	listed := map[string]bool{}
	for _, s := range append(slices.Clone(configtable.Idle), ownOfNet()...) {
		if s.Reason == 0 || listed[s.Field] {
			continue
		}
		listed[s.Field] = true
		a := advice[s.Field]
		fmt.Fprintf(&b, "| `%s`%s | %v | %s | %s |\n", s.Field, onlyIn(s), s.Reason, a.value, cmp.Or(a.note, helpOf(s)))
	}
	return b.String()
}

// TestAdviceIsAboutLimits checks the fields in advice.
func TestAdviceIsAboutLimits(t *testing.T) {
	for field := range advice {
		limit := func(s configtable.Setting) bool { return s.Field == field && s.Reason != 0 }
		require.True(t, slices.ContainsFunc(slices.Concat(configtable.Idle, configtable.Net), limit), field)
	}
}

// onlyIn names the package of a setting that only one of two packages has.
func onlyIn(s configtable.Setting) string {
	switch {
	case configtable.Net.NameOf(s.Field) == "":
		return " (idle)"
	case configtable.Idle.NameOf(s.Field) == "":
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

// groups are the sections of docs/settings.md, with the names of their settings.
var groups = []struct{ question, names string }{
	{"Begin with these", "read-timeout first-byte-timeout write-stall-timeout output-limit max-connections observe-only"},
	{"Is the peer silent?", "all-timeout write-timeout jitter heartbeat heartbeat-retry heartbeat-missed heartbeat-jitter tcp-keepalive"},
	{"Does it log in, send and read?", "handshake-timeout min-rate min-rate-window min-rate-grace min-rate-always output-soft-limit output-soft-for output-total output-high-mark output-low-mark"},
	{"How long may a connection stay?", "max-age max-age-grace reconnect-spread half-closed-timeout close-grace"},
	{"How many connections are there?", "shed-protect wait-for-room max-per-source source-rate accept-rate pressure-timeout socket-buffer"},
	{"When exactly, and what is remembered?", "outage-grace tick keep-closed"},
	{"Where does the server listen, and how does it stop?", "addr loops share-port drain-delay drain-spread drain-timeout drain-keep-listening " +
		"admin admin-token-file admin-pprof"},
}

// settingsMarkdown returns the tables of all settings, by groups. Settings without a group are in a
// last one.
func settingsMarkdown() string {
	all := slices.Concat(configtable.Idle, ownOfNet())
	for _, s := range configtable.Server {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	var b strings.Builder
	usual := configtable.Idle[0]
	fmt.Fprintf(&b, "A duration is %s, unless the row says otherwise. A deadline is at most 2^%d ticks: %.1f years with the tick of 100ms.\n",
		usual.Range(usual.Of(new(idle.Config)).Type()), bits.Len(configtable.MaxTicks)-1, (configtable.MaxTicks*100*time.Millisecond).Hours()/24/365)
	for _, g := range groups {
		var table configtable.Table
		for name := range strings.FieldsSeq(g.names) {
			named := func(s configtable.Setting) bool { return s.Name == name }
			for _, s := range all {
				if named(s) {
					table = append(table, s)
				}
			}
			all = slices.DeleteFunc(all, named)
		}
		b.WriteString(markdown(g.question, table))
	}
	if len(all) > 0 {
		b.WriteString(markdown("More", all))
	}
	b.WriteString(appliesMarkdown())
	return b.String()
}

// TestGroupsNameSettings checks the names in groups.
func TestGroupsNameSettings(t *testing.T) {
	known := slices.Concat(configtable.Idle, configtable.Net, configtable.Server).Names()
	for _, g := range groups {
		require.Subset(t, known, strings.Fields(g.names), g.question)
	}
}

// markdown returns a section with a table of settings.
func markdown(heading string, table configtable.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n| setting | field | package | value | what it does |\n|---|---|---|---|---|\n", heading)
	for _, s := range table {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", s.Name, s.Field, packagesOf(s), valueOf(s), helpOf(s))
	}
	return b.String()
}

// packagesOf names the packages with a setting.
func packagesOf(s configtable.Setting) string {
	var names []string
	for i, table := range []configtable.Table{configtable.Idle, configtable.Net, configtable.Server} {
		if slices.Contains(table, s) {
			names = append(names, []string{"idle", "idlenet", "server"}[i])
		}
	}
	return strings.Replace(strings.Join(names, ", "), "idle, idlenet", "both", 1)
}

// valueOf returns unit and range of a setting, and the meaning of 0 and of negative values.
func valueOf(s configtable.Setting) string {
	var cfg any = new(server.Config)
	switch {
	case slices.Contains(configtable.Idle, s):
		cfg = new(idle.Config)
	case slices.Contains(configtable.Net, s):
		cfg = new(idlenet.Config)
	}
	unit, _ := flag.UnquoteUsage(&flag.Flag{Usage: s.Help, Value: s.Value(cfg)})
	value := cmp.Or(unit, "bool")
	typ, most := s.Of(cfg).Type(), int64(math.MaxInt32)
	if typ == reflect.TypeFor[time.Duration]() {
		most = int64(configtable.TenYears)
	}
	if r := s.Range(typ); r != "" && !s.Ticks && s.Max < most { // otherwise the range is the usual one
		value += ", " + r
	}
	if zero := s.ZeroText(); zero != "" && zero != "none" {
		value += "; 0: " + zero
	}
	if s.Negative != "" {
		value += "; negative: " + s.Negative
	}
	return value
}

// appliesMarkdown returns the names of the settings that apply later or in more ways than others.
func appliesMarkdown() string {
	var start, post, one []string
	for _, s := range append(slices.Clone(configtable.Idle), ownOfNet()...) {
		name := "`" + s.Name + "`"
		field, _, _ := strings.Cut(s.Field, ".")
		_, own := reflect.TypeFor[reap.ConnLimits]().FieldByName(field)
		switch {
		case s.AtStart:
			start = append(start, name)
			continue
		case s.Adjustable:
			post = append(post, name)
		}
		if own {
			one = append(one, name)
		}
	}
	return "\n## When a new value applies\n\nTo live connections, after SIGHUP or `Update`.\n\n" +
		"* Only after a restart: " + strings.Join(start, ", ") + ", and what only package server has.\n" +
		"* Also by POST `/api/timeouts`: " + strings.Join(post, ", ") + ".\n" +
		"* Also for one connection, by `SetLimits`: " + strings.Join(one, ", ") + ".\n"
}
