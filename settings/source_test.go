package settings_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/settings"
)

// newSource returns a Source with a file that holds some lines, each ended, after parsing some
// flags.
func newSource(t *testing.T, lines, args string) *settings.Source[idle.Config] {
	t.Helper()
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	s := settings.New(flags, idle.Config{ReadTimeout: time.Minute})
	require.NoError(t, flags.Parse(strings.Fields(args)))
	s.File = filepath.Join(t.TempDir(), "limits")
	require.NoError(t, os.WriteFile(s.File, []byte(lines+"\n"), 0o600))
	return s
}

func load(t *testing.T, s *settings.Source[idle.Config]) (cfg idle.Config) {
	t.Helper()
	require.NoError(t, s.Load(&cfg))
	return cfg
}

func TestEachSettingIsAFlag(t *testing.T) {
	cfg := testFlags[idle.Config](t, configtable.Idle, settings.Names())
	require.Equal(t, time.Second, cfg.ShedProtect)
	require.Equal(t, time.Second, cfg.MinRate.Grace)
	require.True(t, cfg.MinRate.Always)
	ofNet := testFlags[idlenet.Config](t, configtable.Net, settings.NetNames())
	require.Equal(t, time.Second, ofNet.CloseGrace)
	require.Equal(t, 1, ofNet.Sources.Rate)
}

// testFlags sets the flag of each setting, and returns the Config. The names are those of all
// settings.
func testFlags[C idle.Config | idlenet.Config](t *testing.T, table configtable.Table, names []string) (cfg C) {
	t.Helper()
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	s := settings.New(flags, cfg)
	n := 0
	flags.VisitAll(func(f *flag.Flag) {
		n++
		text := map[bool]string{true: "true", false: "1"}[slices.Contains([]string{"observe-only", "min-rate-always", "wait-for-room"}, f.Name)]
		if d, ok := f.Value.(flag.Getter).Get().(time.Duration); ok {
			require.Zero(t, d)
			text = "1s"
		}
		require.Empty(t, f.DefValue, f.Name)
		require.NoError(t, flags.Set(f.Name, text), f.Name)
		require.Equal(t, text, f.Value.String(), f.Name)
	})
	require.Len(t, names, n)
	require.NoError(t, s.Load(&cfg))
	n = 0
	for name, value := range table.Values(&cfg) {
		require.NotZero(t, value, name)
		require.Equal(t, names[n], name)
		n++
	}
	require.Len(t, names, n)
	return cfg
}

func TestFlagsOverDefaultsAndTheFileOverFlags(t *testing.T) {
	const lines = `# limits of the night

	max-age   2h  # later than usual
jitter 0.25
observe-only true
output-limit 0x10`
	cfg := load(t, newSource(t, lines, "-max-age 1h -keep-closed 7 -min-rate-always"))
	require.Equal(t, idle.Config{
		ReadTimeout: time.Minute, MaxAge: 2 * time.Hour, Jitter: 0.25, ObserveOnly: true, KeepClosed: 7,
		OutputLimit: idle.OutputLimit{Hard: 16}, MinRate: idle.MinRate{Always: true},
	}, cfg)
}

func TestOtherFieldsStay(t *testing.T) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	s := settings.New(flags, idle.Config{ReadTimeout: time.Minute}, "read-timeout", "max-age")
	cfg := idle.Config{
		ReadTimeout: time.Second, MaxAge: time.Second, Tick: time.Second,
		Heartbeat: idle.Heartbeat{Interval: time.Second, Ping: func(gnet.Conn) []byte { return nil }},
	}
	require.NoError(t, s.Load(&cfg))
	require.Equal(t, time.Minute, cfg.ReadTimeout)
	require.Zero(t, cfg.MaxAge, "a setting that is off replaces the old one")
	require.Equal(t, time.Second, cfg.Tick, "it is not a setting of this Source")
	require.Equal(t, time.Second, cfg.Heartbeat.Interval)
	require.NotNil(t, cfg.Heartbeat.Ping)
	require.Nil(t, flags.Lookup("tick"))
	require.NotNil(t, flags.Lookup("max-age"))
}

func TestNewPanicsForAnUnknownName(t *testing.T) {
	require.PanicsWithValue(t, `settings: there is no setting "nonsense"`, func() {
		settings.New(flag.NewFlagSet("test", flag.ContinueOnError), idle.Config{}, "tick", "nonsense")
	})
	require.PanicsWithValue(t, `settings: there is no setting "reconnect-spread"`, func() {
		settings.New(flag.NewFlagSet("test", flag.ContinueOnError), idlenet.Config{}, "tick", "reconnect-spread")
	})
}

func TestAFileWithAMistakeChangesNothing(t *testing.T) {
	for lines, want := range map[string]string{
		"read-timeout 1s\nread-timout 1s\n": `limits, line 2: the file has no setting "read-timout": did you mean read-timeout?`,
		"\n--read-timeout 1s\n":             `limits, line 2: the file has no setting "--read-timeout": did you mean read-timeout?`,
		"ReadTimeout 1s\n":                  `the file has no setting "ReadTimeout": did you mean read-timeout?`,
		"write-stal-timeout 1s\n":           `the file has no setting "write-stal-timeout": did you mean write-stall-timeout?`,
		"wirte_timeout 1s\n":                `the file has no setting "wirte_timeout": did you mean write-timeout?`,
		"idle-timeout 1s\n":                 `the file has no setting "idle-timeout": write a setting and its value, such as "read-timeout 30s"`,
		"tick 1s\nread-timeout 1s\ntick 2s": "limits, line 3: tick is set twice, first in line 1",
		"max-per-source 5":                  "limits, line 1: max-per-source cannot be set in this file: take it out",
		"half-closed-timeout 5s":            "limits, line 1: half-closed-timeout cannot be set in this file: take it out",
		"read-timeout":                      "line 1",
		"observe-only # needs a value":      "line 1",
		"read-timeout 1 s":                  "line 1",
		"read-timeout soon":                 `limits, line 1: read-timeout: "soon" is not a duration such as 30s or 500ms`,
		"read-timeout 30":                   `"30" is not a duration`,
		"keep-closed 1e9":                   `"1e9" is not a whole number`,
		"jitter much":                       `"much" is not a number such as 0.1`,
		"# longer\nread-timeout -5s":        "limits, line 2: read-timeout is -5s: set a positive duration such as 60s, or 0 for none",
		"jitter -1\njitter 2":               "limits, line 1: jitter is -1: set a positive number",
		"observe-only perhaps":              `"perhaps" is neither true nor false`,
		strings.Repeat("x", 1<<20):          "has more than 1048576 bytes",
		strings.Repeat("x", 1000):           `no setting "xxxxxxxx`,
	} {
		cfg := idle.Config{ReadTimeout: time.Hour}
		err := newSource(t, lines, "").Load(&cfg)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "settings: ")
		require.Equal(t, idle.Config{ReadTimeout: time.Hour}, cfg)
	}
}

// TestAFileThatIsBeingWrittenIsRefused cuts a file off after each of its bytes.
func TestAFileThatIsBeingWrittenIsRefused(t *testing.T) {
	const whole = "read-timeout 30s\noutput-limit 1048576\n"
	s := newSource(t, "", "")
	for n := range len(whole) {
		require.NoError(t, os.WriteFile(s.File, []byte(whole[:n]), 0o600))
		err := s.Load(new(idle.Config))
		if n == strings.Index(whole, "\n")+1 {
			require.NoError(t, err) // the first line is a whole file, too
			continue
		}
		require.Error(t, err, "%d bytes", n)
	}
	require.ErrorContains(t, s.Load(new(idle.Config)), "line 2 has no end: the file is not complete")
}

func TestAFileThatIsNoRegularFileIsRefused(t *testing.T) {
	s := newSource(t, "", "")
	s.File = t.TempDir()
	require.ErrorContains(t, s.Load(new(idle.Config)), "is not a regular file")
	s.File = filepath.Join(s.File, "missing")
	require.ErrorIs(t, s.Load(new(idle.Config)), os.ErrNotExist)
}

func TestAFlagWithAMistakeIsAnError(t *testing.T) {
	var out bytes.Buffer
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(&out)
	settings.New(flags, idle.Config{ReadTimeout: time.Minute})
	require.ErrorContains(t, flags.Parse([]string{"-read-timeout", "never"}), `"never" is not a duration`)
	require.Contains(t, out.String(), "  -read-timeout duration\n    \t"+
		"close a connection when its peer sends nothing for this duration (default 1m0s)\n")
	require.Contains(t, out.String(), "  -heartbeat-missed number\n    \t"+
		"close a connection after this number of unanswered pings in a row; 0 is 2\n")
	require.Contains(t, out.String(), "  -observe-only\n")
}

// TestFlagsOfCobra binds the settings to the flags of cobra, as programs with cobra do.
func TestFlagsOfCobra(t *testing.T) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	s := settings.New(flags, idle.Config{ReadTimeout: time.Minute})
	cobra := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cobra.AddGoFlagSet(flags)
	require.NoError(t, cobra.Parse([]string{"--tick=20ms", "--observe-only", "--heartbeat-jitter", "-1"}))
	cfg := load(t, s)
	require.Equal(t, idle.Config{
		ReadTimeout: time.Minute, Tick: 20 * time.Millisecond, ObserveOnly: true, Heartbeat: idle.Heartbeat{Jitter: -1},
	}, cfg)
	usage := cobra.FlagUsages()
	require.Regexp(t, `--read-timeout duration +close .* \(default 1m0s\)\n`, usage)
	require.Regexp(t, `--observe-only +close`, usage)
	require.Equal(t, 1, strings.Count(usage, "(default"), usage)
}

func TestDescribe(t *testing.T) {
	cfg := idle.Config{
		ReadTimeout: time.Minute, Jitter: 0.25, OutputLimit: idle.OutputLimit{Hard: 5}, ObserveOnly: true, OutageGrace: -time.Second,
	}
	require.Equal(t, "read-timeout 1m0s, jitter 0.25, output-limit 5, observe-only true, outage-grace -1s", newSource(t, "", "").Describe(cfg))
	some := settings.New(flag.NewFlagSet("test", flag.ContinueOnError), idle.Config{}, "jitter", "tick", "observe-only")
	require.Equal(t, "jitter 0.25, observe-only true", some.Describe(cfg), "only the settings of the Source")
}

func TestExplain(t *testing.T) {
	_, err := idle.Middleware(&gnet.BuiltinEventEngine{}, idle.Config{
		ReadTimeout: -time.Second, Heartbeat: idle.Heartbeat{Interval: time.Second}, MaxAgeGrace: time.Second,
	})
	const want = "--read-timeout is -1s: set a positive duration such as 60s, or 0 for none; " +
		"--max-age-grace is 1s without --max-age: set both, or neither; Config.Heartbeat.Ping is nil: set the func of a ping, or no --heartbeat"
	require.Equal(t, want, settings.Explain(err, "--"))
	require.Equal(t, strings.ReplaceAll(want, "--", ""), settings.Explain(err, ""))
	require.Equal(t, "at start: "+want, settings.Explain(fmt.Errorf("at start: %w", err), "--"))
	require.Equal(t, "a; b", settings.Explain(errors.Join(errors.New("a"), errors.New("settings: b")), "--"))
	require.Equal(t, "a and b", settings.Explain(fmt.Errorf("%w and %w", errors.New("a"), errors.New("b")), "--"))
	require.Equal(t, "x; y", settings.Explain(errors.New("x\ny"), "--"))

	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	_, err = idlenet.Listen(inner, idlenet.Config{ReadTimeout: -time.Second, AcceptRate: -1, MaxAgeGrace: time.Second})
	require.Equal(t, "--read-timeout is -1s: set a positive duration such as 60s, or 0 for none; "+
		"--max-age-grace is 1s without --max-age: set both, or neither; --accept-rate is -1: set a positive number, or 0 for any number", settings.Explain(err, "--"))
}

// TestDescribeIsAFileOfLimits writes the text of Describe as a file, and reads the same Config
// back.
func TestDescribeIsAFileOfLimits(t *testing.T) {
	want := idle.Config{
		ReadTimeout: time.Minute + 1, Jitter: 1e-9, OutputLimit: idle.OutputLimit{Hard: math.MaxInt}, ObserveOnly: true,
		OutageGrace: -time.Second, MinRate: idle.MinRate{Always: true, Window: time.Hour}, Heartbeat: idle.Heartbeat{Jitter: -1},
	}
	s := newSource(t, strings.ReplaceAll(newSource(t, "", "").Describe(want), ", ", "\n"), "-read-timeout 0")
	require.Equal(t, want, load(t, s))
}

func TestReadToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(" \t0123456789abcdef\r\n\n")
	token, err := settings.ReadToken(file)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", token)
	write(" \n")
	_, err = settings.ReadToken(file)
	require.ErrorContains(t, err, "token is empty: write at least 16 characters")
	_, err = settings.ReadToken(file + "s")
	require.ErrorIs(t, err, os.ErrNotExist)
	token, err = settings.ReadToken("")
	require.NoError(t, err)
	require.Empty(t, token)
}
