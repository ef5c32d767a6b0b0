package main

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

// children are the main functions of processes that tests start, by the variable of the environment
// that they have as their argument.
var children map[string]func(string)

func TestMain(m *testing.M) {
	for env, child := range children {
		if arg := os.Getenv(env); arg != "" {
			child(arg)
			return
		}
	}
	flag.Parse()
	_ = flag.Set("test.parallel", needs.Parallel(8)) // parallel tests wait most of the time
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // importing gnet starts two goroutines
}

func TestWrongFlagsAreOneLineAndExitCodeTwo(t *testing.T) {
	limits := filepath.Join(t.TempDir(), "limits")
	require.NoError(t, os.WriteFile(limits, []byte("read-timeout 1s\n"), 0o600))
	for args, want := range map[string]string{
		"":       "a command is missing: serve, connect, demo or version",
		"bogus":  `unknown command "bogus"`,
		"serv":   "did you mean serve? (see echo-heartbeat --help)",
		"--nope": "unknown flag: --nope",

		"serve --read-timout 1s": "unknown flag: --read-timout; did you mean --read-timeout? (see",
		"serve extra":            `unexpected argument "extra"`,
		"serve --read-timeout 0 --output-limit 0 --output-total -1": "no limit is set, so no connection would ever be closed: set one, for example --read-timeout to 60s",
		"serve --read-timeout -1s --tick -1s":                       "--tick is -1s",
		"serve --read-timeout 1s --tick 5s":                         "--tick is 5s, longer than --read-timeout of 1s",
		"serve --read-timeout never":                                `"never" is not a duration such as 30s`,
		"serve --addr nonsense":                                     `bad address: --addr has "nonsense": missing port`,
		"serve --addr=":                                             "--addr is not set",
		"serve --addr host.invalid:7000":                            "lookup host.invalid",
		"serve --addr tcp6://127.0.0.1:0":                           "no suitable address",
		"serve --addr 127.0.0.1:99999":                              "invalid port",
		"serve --admin host.invalid:7080":                           `--admin is "host.invalid:7080": lookup host.invalid`,
		"serve --addr unix://s":                                     "set an absolute path",
		"serve --addr unix:/run/s":                                  "for a unix socket write unix:///path",
		"connect --addr unix://":                                    "no path",
		"serve --addr :0 --addr 127.0.0.1:0 --bare":                 "--bare needs one --addr",
		"serve --admin nonsense":                                    `--admin is "nonsense"`,
		"serve --admin 0.0.0.0:0":                                   `--admin is "0.0.0.0:0", which others can reach: set --admin-token-file, or listen on 127.0.0.1`,
		"serve --admin-pprof":                                       "--admin is not set",
		"serve --admin-token-file /nope":                            "no such file",
		"serve --admin-token-file /dev/null":                        "/dev/null is empty",
		"serve --log-level loud":                                    "--log-level is \"loud\": take debug, info, warn or error",
		"serve --output-total 5":                                    "--output-total is 5, below --output-limit, which is 1048576: set more",
		"serve --output-total 9223372036854775808":                  `"9223372036854775808" is not a whole number`,
		"serve --outage-grace never":                                `"never" is not a duration`,
		"serve --min-rate-always":                                   " without --min-rate: set both, or neither",
		"serve --tick 5s --limits " + limits:                        "serve: tick is 5s, longer than read-timeout of 1s",
		"serve --limits /nope":                                      "--limits: stat /nope: no such file",
		"serve --limits /dev/null":                                  "/dev/null is not a regular file",
		"serve --heartbeat-jitter 0.1":                              "--heartbeat-jitter is 0.1 without --heartbeat: set both, or neither",
		"connect --addr foo":                                        "missing port",
		"connect --heartbeat 0":                                     "--heartbeat is 0s",
		"demo --read-timeout 1h":                                    "--read-timeout is 1h0m0s: set 100ms to 5s",
		"demo --read-timeout 1s --tick 5s":                          "--tick is 5s, longer than --read-timeout of 1s",
		"version extra":                                             `unexpected argument "extra"`,
		"demo --max-age 1h":                                         "unknown flag: --max-age",
		"demo --clients 1":                                          "--clients is 1",
		"demo --read-timeout 1s --clients 1e9":                      "invalid argument",
	} {
		t.Run(args, func(t *testing.T) {
			var out, errs syncbuf.Buffer
			assert.Equal(t, 2, run(t.Context(), strings.Fields(args), &out, &errs))
			assert.Empty(t, out.String())
			assert.Contains(t, errs.String(), want)
			assert.Contains(t, errs.String(), "--help)")
			assert.Equal(t, 1, strings.Count(errs.String(), "\n"), "one line, not: %s", errs.String())
		})
	}
}

// TestErrorsNameFlagsAndNoFields gives each flag of each verb values that are wrong for most flags.
// The context is done, so that a verb with a good value ends soon.
func TestErrorsNameFlagsAndNoFields(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("token", []byte("short"), 0o600))
	values := []string{"", "-1", "-1s", "1", "1s", "2s", "99999h", "99999999h", "1e99", "2", "true", "nonsense", "192.0.2.1:1",
		"host.invalid:1", "unix://s", "token"}
	field := regexp.MustCompile(`\bConfig\b|\b[A-Z][a-z]+[A-Z]|[a-z]\.[A-Z]`)
	parse := regexp.MustCompile(`strconv\.Parse\w+`) // in errors of pflag
	serve, hangups := newServe()
	hangups.Stop()
	for _, cmd := range []*cobra.Command{serve, newConnect(), newDemo()} {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			wrong := 0
			for _, value := range values {
				args := []string{cmd.Use, "--" + f.Name + "=" + value}
				if cmd.Use == "serve" && f.Name != "admin" {
					args = append(args, "--admin=127.0.0.1:0")
				}
				var out, errs syncbuf.Buffer
				code := run(ctx, args, &out, &errs)
				require.Equal(t, code == 0, errs.String() == "", args)
				require.NotRegexp(t, field, parse.ReplaceAllString(errs.String(), ""), args)
				if code == 2 {
					wrong++
				}
			}
			require.NotZero(t, wrong, f.Name)
		})
	}
}

// serveInBackground runs serve, with the settings on its output. It returns the address that serve
// prints, and a function that interrupts serve and returns its output.
func serveInBackground(t testing.TB, flags ...string) (addr string, interrupt func() string) {
	t.Helper()
	return serveOn(t, new(syncbuf.Buffer), flags...)
}

// serveOn is serveInBackground with a buffer that the test can read meanwhile.
func serveOn(t testing.TB, out *syncbuf.Buffer, flags ...string) (addr string, interrupt func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var errs syncbuf.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"serve", "--addr", "127.0.0.1:0", "--log-level", "warn"}, flags...), out, &errs)
	}()
	listening := regexp.MustCompile(`listening on (\S+),`)
	require.Eventually(t, func() bool { return listening.MatchString(out.String()) }, 10*time.Second, time.Millisecond,
		"serve prints where it listens")
	var once sync.Once
	interrupt = func() string {
		once.Do(func() {
			cancel()
			require.Zero(t, <-code)
		})
		return out.String()
	}
	t.Cleanup(func() { interrupt() })
	return listening.FindStringSubmatch(out.String())[1], interrupt
}

func TestServeEchoesAndGivesTheReasonOfAClose(t *testing.T) {
	addr, interrupt := serveInBackground(t, "--read-timeout", "300ms", "--loops", "1")
	c := sockets.Dial(t, "tcp", addr)
	_, err := c.Write([]byte("PING\nhello\n"))
	require.NoError(t, err)
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Regexp(t, `^PONG\nhello\nclosing: read idle for [\d.]+m?s, limit 300ms\n$`, string(got))
	require.Contains(t, interrupt(), "stopped: 1 connections, 1 reads, 1 reaped (1 read idle), mean")
}

func TestServePrintsItsSettings(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                      ", read-timeout 1m0s, output-limit 1048576, keep-closed 128, tick 100ms, at most",
		"--outage-grace 30s --keep-closed 9":    ", read-timeout 1m0s, output-limit 1048576, keep-closed 9, outage-grace 30s, tick 100ms, at most",
		"--outage-grace -1s":                    ", read-timeout 1m0s, output-limit 1048576, keep-closed 128, outage-grace -1s, tick 100ms, at most",
		"--shed-protect 5s --observe-only":      ", output-limit 1048576, shed-protect 5s, observe-only true, keep-closed 128,",
		"--heartbeat 20s":                       ", heartbeat 20s, heartbeat-retry 20s, heartbeat-missed 2, heartbeat-jitter 0.2, keep",
		"--heartbeat 20s --heartbeat-jitter -1": ", heartbeat-jitter -1, keep",
		"--min-rate 9 --min-rate-grace 3s":      ", min-rate 9, min-rate-window 5s, min-rate-grace 3s, keep",
	} {
		_, interrupt := serveInBackground(t, strings.Fields(flags)...)
		require.Contains(t, withoutMachine(interrupt()), want, flags)
	}
}

// withoutMachine takes the limits out of a line that depend on the machine.
func withoutMachine(line string) string {
	return regexp.MustCompile(`, (max-connections|output-total) \d+`).ReplaceAllString(line, "")
}

// TestServeHasAFlagForEachLimit lets a client exceed each limit.
func TestServeHasAFlagForEachLimit(t *testing.T) {
	t.Parallel()
	const none = "--read-timeout=0"
	for _, tc := range []struct {
		flags, send, listening, reason string
	}{
		{"--all-timeout 300ms", "", "all-timeout 300ms", "all idle"},
		{"--first-byte-timeout 300ms", "", "first-byte-timeout 300ms", "no first byte"},
		{"--handshake-timeout 300ms", "no line", "handshake-timeout 300ms", "no handshake"},
		{"--min-rate 1000 --min-rate-window 300ms", "no line", "min-rate 1000", "below min rate"},
		{"--heartbeat 300ms --heartbeat-retry 100ms --heartbeat-missed 1", "", "heartbeat 300ms", "heartbeat timeout"},
		{"--max-age 300ms --max-age-grace 100ms --jitter 0.1", "", "max-age 300ms", "max age"},
		{"--output-limit 100000", strings.Repeat("x", 1<<24), "output-limit 100000", "over limit"},
		{"--output-limit 0 --output-soft-limit 100000 --output-soft-for 300ms", strings.Repeat("x", 1<<24), "output-soft-limit 100000", "over limit"},
		{"--output-limit 0 --write-stall-timeout 300ms --tcp-keepalive 60s", strings.Repeat("x", 1<<24), "write-stall-timeout 300ms", "write stall"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			addr, interrupt := serveInBackground(t, append(strings.Fields(tc.flags), none)...)
			c := sockets.Dial(t, "tcp", addr)
			if large := len(tc.send) > 1<<20; large { // nothing is read: the write fails after the reset
				_, err := c.Write([]byte(tc.send))
				for err == nil {
					_, err = c.Write([]byte("x"))
				}
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			} else {
				_, err := c.Write([]byte(tc.send))
				require.NoError(t, err)
				got, err := io.ReadAll(c)
				require.NoError(t, err)
				require.Contains(t, string(got), "closing: "+tc.reason)
			}
			out := interrupt()
			require.Contains(t, out, tc.listening)
			require.Contains(t, out, "1 reaped (1 "+tc.reason+")")
		})
	}
}

// TestServeKeepsConnections has connections that no limit closes: there is no reaper, it observes
// only, or a complete line has ended the message.
func TestServeKeepsConnections(t *testing.T) {
	t.Parallel()
	for flags, tc := range map[string]struct {
		send      []string
		got, last string
	}{
		"--bare --read-timeout 100ms":                               {[]string{"PING\n"}, "PONG\n", "without a reaper"},
		"--read-timeout 200ms --observe-only --write-timeout 100ms": {nil, "", "1 would have been reaped (1 read idle)"},
		"--read-timeout=0 --min-rate 100 --min-rate-window 200ms --handshake-timeout 500ms": {
			[]string{"be", "gun", "\n", "PI", "NG\n"}, "begun\nPONG\n", "stopped: 1 connections",
		},
	} {
		fair.RunParallel(t, flags, func(t testing.TB) {
			addr, interrupt := serveInBackground(t, strings.Fields(flags)...)
			c := sockets.Dial(t, "tcp", addr)
			for _, part := range tc.send {
				_, err := c.Write([]byte(part))
				require.NoError(t, err)
				time.Sleep(20 * time.Millisecond)
			}
			require.NoError(t, c.SetDeadline(time.Now().Add(3*time.Second)))
			got, err := io.ReadAll(c)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the connection stays")
			require.Equal(t, tc.got, string(got))
			require.Contains(t, interrupt(), tc.last)
		})
	}
}

func TestConnectKeepsItselfAliveByHeartbeats(t *testing.T) {
	t.Parallel()
	addr, _ := serveInBackground(t, "--read-timeout", "1s")
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs syncbuf.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"connect", "--addr", addr, "--heartbeat", "250ms"}, &out, &errs)
	}()
	require.Eventually(t, func() bool { return strings.Count(out.String(), `received "PONG\n"`) >= 6 }, 20*time.Second,
		time.Millisecond, "the client lives for longer than the timeout of the server")
	require.NotContains(t, out.String(), "closing")
	cancel()
	require.Zero(t, <-code)
	require.Contains(t, out.String(), "interrupted")
}

func TestSilentConnectIsReaped(t *testing.T) {
	addr, _ := serveInBackground(t, "--read-timeout", "300ms")
	var out, errs syncbuf.Buffer
	require.Zero(t, run(t.Context(), []string{"connect", "--addr", addr, "--silent", "--heartbeat", "100ms"}, &out, &errs))
	require.Contains(t, out.String(), "closing: read idle")
	require.Contains(t, out.String(), "closed by the server")
	require.NotContains(t, out.String(), "sending")
}

func TestConnectDetectsADeadServer(t *testing.T) {
	ln := sockets.Listen(t, "tcp", "127.0.0.1:0") // the kernel accepts, and no program answers
	var out, errs syncbuf.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"connect", "--addr", ln.Addr().String(), "--heartbeat", "100ms"}, &out, &errs))
	require.Equal(t, maxMissed, strings.Count(out.String(), "sending PING"))
	require.Contains(t, errs.String(), "the server is dead")
}

func TestConnectNeedsAServer(t *testing.T) {
	ln := sockets.Listen(t, "tcp", "127.0.0.1:0")
	require.NoError(t, ln.Close())
	var out, errs syncbuf.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"connect", "--addr", ln.Addr().String()}, &out, &errs))
	require.Contains(t, errs.String(), "is the server running?")
}

func TestEveryVerdictOfTheDemoIsRight(t *testing.T) {
	t.Parallel()
	var out, errs syncbuf.Buffer
	require.Zero(t, run(t.Context(), []string{"demo", "--read-timeout", "1s", "--clients", "9"}, &out, &errs),
		"%s\n%s", out.String(), errs.String())
	require.Contains(t, out.String(), "all 9 verdicts were right")
	require.Equal(t, 6, strings.Count(out.String(), "reaped: read idle for "), "%s", out.String())
}

func TestDemoCanBeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(500*time.Millisecond, cancel).Stop()
	var out, errs syncbuf.Buffer
	require.Zero(t, run(ctx, []string{"demo"}, &out, &errs), "%s", &errs)
	require.Contains(t, out.String(), "interrupted: no verdict")
}

func TestDemoReportsWrongVerdicts(t *testing.T) {
	cfg, errReaped := newShow(io.Discard, idle.Config{ReadTimeout: time.Second}, 3).cfg, &idle.ReapError{Reason: reap.ReadIdle}
	now := time.Now()
	for want, c := range map[string]*client{
		"a living client was cut off": {fate: lives, closedAt: now, reason: errReaped},
		"a dead client was kept":      {fate: silent},
		"closed for another reason":   {fate: vanishes, closedAt: now, reason: io.EOF, lastSent: now.Add(-time.Hour)},
		"reaped too early":            {fate: silent, closedAt: now, reason: errReaped, lastSent: now.Add(-cfg.ReadTimeout / 2)},
	} {
		var out syncbuf.Buffer
		r := &round{show: newShow(&out, cfg, 2)}
		c.round, r.clients = r, []*client{c, {fate: lives}}
		require.EqualError(t, r.summary(), "1 of 2 verdicts were wrong")
		require.Contains(t, out.String(), want)
	}
	r := &round{show: newShow(io.Discard, cfg, 2)}
	r.clients = []*client{{round: r, fate: silent, closedAt: now, reason: errReaped, lastSent: now.Add(-cfg.ReadTimeout)}, {fate: lives}}
	require.NoError(t, r.summary())
}

func TestVersionHasTheVersionsOfTheBuild(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		var out, errs syncbuf.Buffer
		require.Zero(t, run(t.Context(), []string{arg}, &out, &errs), errs.String())
		lines := strings.Split(out.String(), "\n")
		assert.Regexp(t, `^echo-heartbeat (\(devel\)|v\d+\.\d+\.\d+)`, lines[0])
		assert.Contains(t, lines, "go "+runtime.Version())
		assert.Regexp(t, `\ngnet v2\.\d+\.\d+\n$`, out.String())
	}
}

func TestVersionHasTheRevisionOfAClone(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}}
	assert.Equal(t, "echo-heartbeat v0.1.0\ngo go1.26.8\ngnet v2.10.0\n", describe(info, "v2.10.0"), "of a release")

	info.Main.Version = "v0.1.1-0.20261123020000-0123456789ab+dirty"
	info.Settings = []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"},
		{Key: "vcs.time", Value: "2026-11-23T02:00:00Z"},
		{Key: "vcs.modified", Value: "true"},
	}
	assert.Equal(t, "echo-heartbeat v0.1.1-0.20261123020000-0123456789ab+dirty\n"+
		"revision 0123456789abcdef, with changes\ncommitted 2026-11-23T02:00:00Z\ngo go1.26.8\ngnet v2.10.0\n",
		describe(info, "v2.10.0"), "of a clone with changes")
}
