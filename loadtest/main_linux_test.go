package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/loadtest/internal/processes"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
	"github.com/idlewheel/idlewheel/loadtest/internal/testserver"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == processes.ClientVerb { // a client process of a test
		main()
		return
	}
	flag.Parse()
	_ = flag.Set("test.parallel", needs.Parallel(8)) // runs wait most of the time
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(binaries)
		os.Exit(code)
	}))
}

// binaries is the directory of the server, empty if no test needs one.
var binaries string

// echoServer builds the server once. A command without --server builds its own.
var echoServer = sync.OnceValue(func() (file string) {
	var err error
	if binaries, err = os.MkdirTemp("", "loadtest"); err != nil {
		panic(err)
	}
	file = filepath.Join(binaries, "echo-heartbeat")
	if out, err := exec.Command("go", "build", "-o", file, processes.Package).CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	return file
})

// A finished run is the output of a command.
type finished struct {
	code        int
	out, errs   string
	result      *result.Result // of --out
	resultFile  string
	reportBytes string // of --html
}

// command runs a command line with --out and --html.
func command(t testing.TB, ctx context.Context, line string) finished {
	t.Helper()
	dir := t.TempDir()
	f := finished{resultFile: filepath.Join(dir, "result.json")}
	page := filepath.Join(dir, "report.html")
	var out, errs syncbuf.Buffer
	f.code = execute(ctx, append(strings.Fields(line), "--out", f.resultFile, "--html", page), &out, &errs)
	f.out, f.errs = out.String(), errs.String()
	if strings.Contains(f.out, "loadtest itself was late") {
		fair.Excuse(t, "%s", f.out)
	}
	if _, err := os.Stat(f.resultFile); err == nil {
		f.result, err = result.Read(f.resultFile)
		require.NoError(t, err)
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		f.reportBytes = string(b)
	}
	return f
}

func TestVersion(t *testing.T) {
	var out, errs syncbuf.Buffer
	require.Zero(t, execute(t.Context(), []string{"--version"}, &out, &errs), "%s", &errs)
	require.Regexp(t, `^loadtest version (\(devel\)|v\d+\.\d+\.\d+)`, out.String())
}

func TestHelp(t *testing.T) {
	for _, verb := range []string{"hold", "witness", "path"} {
		var out, errs syncbuf.Buffer
		require.Zero(t, execute(t.Context(), []string{verb, "--help"}, &out, &errs))
		require.Contains(t, out.String(), "Usage:")
	}
}

func TestWrongFlagsExitWithTwo(t *testing.T) {
	for line, want := range map[string]string{
		"":                                  "name a verb",
		"bogus":                             `unknown command "bogus"`,
		"hodl":                              "did you mean hold? (see loadtest --help)",
		"hold --nope":                       "unknown flag: --nope (see",
		"hold --time-out 1s":                "did you mean --timeout?",
		"hold extra":                        `unexpected argument "extra"`,
		"hold -c 0":                         "--connections is 0",
		"hold -c 1g":                        "is not a number of connections",
		"hold --target nowhere":             "--target nowhere: set host:port",
		"hold --target 127.0.0.1:0":         "port 0 is not valid",
		"hold --target 127.0.0.1:1 --bare":  "for launched servers",
		"hold --heartbeat 60s":              "is too long for a --timeout of 1m0s",
		"hold --jitter 0.6":                 "--jitter is 0.6",
		"merge --expect-results 2 x":        "--expect-results is 2: got 1 files",
		"hold --source x":                   `--source "x"`,
		"hold --expect held>=most":          "held>=most: set a value such as 100%",
		"hold --out - --html -":             "--out and --html are both -",
		"hold --out /nonexistent/x":         "/nonexistent/x",
		"hold --target 127.0.0.1:1 --pid 0": "--pid 0: no such process",
		"storm --every 9s":                  "--every of 9s is too long",
		"hold --expect lateness.p99<1":      "lateness.p99<1: set a value such as 250ms",
		"hold --expect bogus<1":             "\"bogus\" is not known: the names are client-bytes",
		"storm --living 0":                  "--living",
		"outage --target 127.0.0.1:1":       "--pid",
		"mix --mix active=50":               "the sum of the shares is 50 percent",
		"mix --mix bogus=100":               `"bogus=100" is not a share`,
		"mix --mix active=50,active=50":     `"active=50" is not a share`,
		"mix --mix active=nan,silent=100":   `"active=nan" is not a share`,
		"merge /nonexistent":                "/nonexistent",
		"attack":                            "name one of slowloris",
		"attack bogus":                      "name one of slowloris",
		"echo --pair 127.0.0.1:1":           "--pair needs a --target",
		"merge":                             "name the files",

		"witness":                               "--port and --pid: set one",
		"witness --port 0":                      "--port 0: set 1 to 65535",
		"witness --port 7 --out /nonexistent/x": "/nonexistent/x",
		"witness --pid -1":                      "--pid is -1",
		"path":                                  `--target "": set host:port`,
		"path --target 127.0.0.1:1 --patience 2h": "--patience is 2h",
	} {
		t.Run(line, func(t *testing.T) {
			var out, errs syncbuf.Buffer
			require.Equal(t, exitUsage, execute(t.Context(), strings.Fields(line), &out, &errs), "%s", &errs)
			require.Contains(t, errs.String(), want)
			require.Contains(t, errs.String(), "--help)")
			require.Equal(t, 1, strings.Count(errs.String(), "\n"), "one line, not: %s", &errs)
		})
	}
}

func TestHoldWithTarget(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		addr := testserver.Serve(t, testserver.Reap(600*time.Millisecond, ""))
		f := command(t, t.Context(), "hold -c 100 --target "+addr+" --timeout 600ms --tick 10ms --heartbeat 100ms --hold 1s "+
			"--expect held>=100% --expect false-reaps==0 --expect early==0 --expect kept==0 "+
			"--expect lateness.max<=5s --expect latency.p99<=5s --expect open-within<=10s --expect own-delay.max<5s")
		require.Zero(t, f.code, "%s%s", f.out, f.errs)
		g := f.result.Groups[0]
		require.Equal(t, uint64(100), g.Opened)
		require.Equal(t, uint64(100), g.Reaped)
		require.Equal(t, uint64(100), g.Lateness.Count())
		require.GreaterOrEqual(t, g.Answers, uint64(500))
		var phases []string
		for _, p := range f.result.Phases {
			phases = append(phases, p.Name)
		}
		require.Equal(t, []string{"open", "hold", "silent"}, phases)
		latest := f.result.Samples[len(f.result.Samples)-1]
		require.GreaterOrEqual(t, latest.At, time.Second)
		require.Positive(t, f.result.Samples[1].Latency.Count, "answers since the first sample")
		require.Len(t, f.result.Expectations, 8)
		require.Contains(t, f.out, "held")
		require.Contains(t, f.errs, " open ", "a line of progress per second")
		require.Contains(t, f.reportBytes, "<svg")

		// The merge with a second machine doubles the counts.
		f.result.Machines[0].Name = "another"
		other := filepath.Join(t.TempDir(), "other.json")
		require.NoError(t, write(nil, other, f.result.Write))
		sum := command(t, t.Context(), "merge --expect false-reaps==0 --expect own-delay.max<5s "+f.resultFile+" "+other)
		require.Zero(t, sum.code, sum.errs)
		require.Equal(t, uint64(200), sum.result.Groups[0].Reaped)
		require.Equal(t, uint64(200), sum.result.Groups[0].Lateness.Count())
		require.Equal(t, 200, sum.result.Setup.Connections)
		require.Len(t, sum.result.Expectations, 2)
		sum = command(t, t.Context(), "merge "+f.resultFile+" "+other)
		require.Contains(t, sum.out, "are not judged here")
		twice := command(t, t.Context(), "merge "+other+" "+other)
		require.Equal(t, exitUsage, twice.code)
		require.NotContains(t, twice.out, "passed")
	})
}

// TestBadTargetsAreNamed loads targets that are not echo servers.
func TestBadTargetsAreNamed(t *testing.T) {
	t.Parallel()
	ln := sockets.Listen(t, "tcp4", "127.0.0.1:0")
	dead := ln.Addr().String()
	require.NoError(t, ln.Close())
	const kept = "hold -c 300 --timeout 0 --heartbeat 100ms --patience 1s --hold 1500ms"
	const reaped = "hold -c 20 --timeout 500ms --heartbeat 100ms --hold 1s"
	const echo = "echo -c 5 --timeout 500ms --heartbeat 100ms --for 2s --patience 1s"
	for name, tc := range map[string]struct{ line, addr, want string }{
		"nothing listens":            {kept, dead, "no server can be reached at " + dead + ": connect: connection refused"},
		"it closes everything":       {kept, testserver.Serve(t, func(net.Conn) {}), "the target closes every connection"},
		"it never answers":           {kept, testserver.Serve(t, testserver.Discard), "the target never answers"},
		"it answers garbage":         {kept, testserver.Serve(t, testserver.Leave(time.Hour, "HTTP/1.1 400 Bad Request\n")), "it is not an echo server"},
		"it sends a lot":             {kept, testserver.Serve(t, testserver.Leave(time.Hour, strings.Repeat("x", 1<<20))), "it is not an echo server"},
		"it only reaps":              {reaped, testserver.Serve(t, testserver.Leave(500*time.Millisecond, "")), "the target never answers"},
		"it greets and reaps":        {reaped, testserver.Serve(t, testserver.Leave(500*time.Millisecond, "hello\n")), "it is not an echo server"},
		"it only reaps, for answers": {echo, testserver.Serve(t, testserver.Leave(500*time.Millisecond, "")), "the target never answers"},
	} {
		fair.RunParallel(t, name, func(t testing.TB) {
			f := command(t, t.Context(), tc.line+" --target "+tc.addr)
			require.Equal(t, exitFailed, f.code, f.out)
			require.Contains(t, f.out, "failed: ")
			require.Contains(t, f.out, tc.want)
			require.NotContains(t, f.errs, tc.want, "the cause stands once")
			require.NotEmpty(t, f.result.Errors)
		})
	}
	f := command(t, t.Context(), "churn -c 5 --for 1s --source 10.99.0.0/16 --target "+dead)
	require.Contains(t, f.out, "not valid: no connection can be opened: bind", "this machine is to blame")
}

// TestBeginAt runs two commands that begin together and one that is late, and merges the logs of
// the two.
func TestBeginAt(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		addr := testserver.Serve(t, testserver.Reap(time.Minute, ""))
		begin := time.Now().Add(2 * time.Second).Truncate(time.Second)
		flags := fmt.Sprintf("hold -c 10 --target %s --timeout 1m --heartbeat 100ms --hold 1s --reap=false --begin-at %d", addr, begin.Unix())
		logs := make([]string, 2)
		var running sync.WaitGroup
		for i := range logs {
			logs[i] = filepath.Join(t.TempDir(), "log")
			running.Go(func() {
				f := command(t, t.Context(), flags)
				if !assert.Zero(t, f.code, "%s", f.errs) {
					return
				}
				assert.WithinRange(t, f.result.Began, begin, begin.Add(5*time.Second))
				b, err := json.MarshalIndent(f.result, "", " ")
				assert.NoError(t, err)
				assert.NoError(t, os.WriteFile(logs[i], append([]byte(f.errs+f.out), b...), 0o600))
			})
		}
		running.Wait()
		var out, errs syncbuf.Buffer
		require.Zero(t, execute(t.Context(), append([]string{"merge", "--expect-results", "2", "--expect", "held>=100%"}, logs...), &out, &errs), "%s", &errs)
		require.Contains(t, out.String(), "20")

		f := command(t, t.Context(), strings.Replace(flags, fmt.Sprint(begin.Unix()), "1", 1))
		require.Equal(t, exitCannot, f.code)
		require.Contains(t, f.errs, "later than --begin-at")
	})
}

// TestLaunchedServer runs each verb briefly with a real server.
func TestLaunchedServer(t *testing.T) {
	server := echoServer() // before the runs, which need the processors
	const quick = " -c 60 --timeout 1s --heartbeat 200ms --expect own-delay.max<5s "
	for line, check := range map[string]func(t testing.TB, r *result.Result){
		"hold --hold 1s --servers 2 --clients 2" + quick: func(t testing.TB, r *result.Result) {
			require.Equal(t, uint64(60), r.Groups[0].Reaped)
			require.Equal(t, 2, r.Setup.Clients)
			require.Equal(t, 2, r.Setup.Servers)
			require.Len(t, r.Setup.Targets, 1)
			require.Nil(t, r.Costs, "too few connections for costs")
		},
		"hold --hold 1s --servers 2 --ports-each --reap=false" + quick: func(t testing.TB, r *result.Result) {
			require.Len(t, r.Setup.Targets, 2)
			require.Zero(t, r.Groups[0].Reaped)
		},
		"hold --hold 2s --bare --servers 2" + quick: func(t testing.TB, r *result.Result) {
			require.True(t, r.Setup.Bare)
			require.Equal(t, uint64(60), r.Groups[0].Ended)
		},
		"storm --living 10 --calm 1s" + quick: func(t testing.TB, r *result.Result) {
			require.Equal(t, uint64(60), r.Groups[1].Reaped)
			require.NotNil(t, r.Groups[0].Latency["before"])
			require.NotNil(t, r.Groups[0].Latency["during"])
			require.NotNil(t, r.Groups[0].Latency["after"])
		},
		"outage" + quick: func(t testing.TB, r *result.Result) {
			require.Equal(t, uint64(60), r.Groups[0].Reaped, "after the outage, at the end of the run")
			longest := time.Duration(0) // answers arrive at SIGCONT, between two phases
			for _, l := range r.Groups[0].Latency {
				longest = max(longest, l.Corrected.Quantile(0.99))
			}
			require.Greater(t, longest, 300*time.Millisecond)
		},
		"mix --for 6s" + quick: func(t testing.TB, r *result.Result) {
			require.Len(t, r.Groups, 6)
			for _, g := range r.Groups {
				switch g.Name {
				case "silent", "trickle", "slow-reader":
					require.Equal(t, g.Opened, g.Reaped, g.Name)
				}
			}
			notes := strings.Join(r.Notes, "\n")
			require.Contains(t, notes, "at the end the target has 42 connections, this client 42")
			if i := slices.IndexFunc(r.Groups, func(g result.Group) bool { return g.Name == "half-open" }); !strings.Contains(notes, "only fall silent") {
				require.EqualValues(t, 3, r.Groups[i].Vanished)
				require.EqualValues(t, 3, r.Groups[i].Reaped, "the sockets of the target tell it")
			}
		},
		"churn --for 1s --rate 500" + quick: func(t testing.TB, r *result.Result) {
			require.InDelta(t, 500, r.Groups[0].Opened, 60)
			require.Contains(t, strings.Join(r.Notes, "\n"), "connections per second were opened")
		},
		"attack silent --server-args=--first-byte-timeout=1s --for 3s --calm 1s --living 5" + quick: func(t testing.TB, r *result.Result) {
			require.Equal(t, uint64(60), r.Groups[1].Reaped)
			require.NotZero(t, r.Groups[1].Lifetime.Count())
		},
		"attack flood --for 1s --calm 1s --living 5 --rate 1000" + quick: func(t testing.TB, r *result.Result) {
			require.NotZero(t, r.Groups[1].Answers)
		},
		"echo --for 1s" + quick: func(t testing.TB, r *result.Result) {
			require.Contains(t, strings.Join(r.Notes, "\n"), "answers per second")
		},
	} {
		fair.RunParallel(t, line, func(t testing.TB) {
			f := command(t, t.Context(), line+" --server "+server)
			require.Zero(t, f.code, "%s\n%s", f.out, f.errs)
			check(t, f.result)
			for _, g := range f.result.Groups {
				require.True(t, g.Name != "living" || g.Reaped == 0, "%d of the group living are dead", g.Reaped)
			}
		})
	}
}

// TestVanishedConnectionsThatTheTargetKeeps has a target with a longer timeout than is told.
func TestVanishedConnectionsThatTheTargetKeeps(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		f := command(t, t.Context(), "mix -c 10 --mix half-open=100 --timeout 1s --heartbeat 300ms --for 6s --server-args=--read-timeout=1h --server "+echoServer())
		require.Equal(t, exitFailed, f.code, "%s", f.out)
		require.Contains(t, f.out, "kept: 10 dead connections were not closed")
	})
}

func TestServerDeathEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var killing sync.WaitGroup
	defer killing.Wait()
	killing.Go(func() {
		// The server is the only child with this verb.
		server, err := strconv.Atoi(awaitChild("cmdline", "serve"))
		if !assert.NoError(t, err) { // 0 means this process and its parent
			cancel()
			return
		}
		_ = syscall.Kill(server, syscall.SIGKILL)
	})
	f := command(t, ctx, "hold -c 50 --timeout 5s --heartbeat 100ms --hold 1h")
	if strings.Contains(f.errs, "no line about its listener") { // it was killed before
		require.Equal(t, exitCannot, f.code)
		return
	}
	require.Equal(t, exitFailed, f.code)
	require.Contains(t, f.out, "server 1 of 1 ended")
}

// awaitChild waits for a child process of this process with a text in a file of /proc, and returns
// its number, "" if there is none in time.
func awaitChild(file, text string) (pid string) {
	for range 10_000 {
		time.Sleep(20 * time.Millisecond)
		tasks, _ := filepath.Glob("/proc/self/task/*/children")
		for _, task := range tasks {
			children, _ := os.ReadFile(task)
			for pid := range strings.FieldsSeq(string(children)) {
				if b, _ := os.ReadFile(filepath.Join("/proc", pid, file)); strings.Contains(string(b), text) {
					return pid
				}
			}
		}
	}
	return ""
}

func TestDoctorOfThisMachine(t *testing.T) {
	var out, errs syncbuf.Buffer
	require.Zero(t, execute(t.Context(), []string{"doctor", "-c", "100"}, &out, &errs), "%s", &errs)
	require.Contains(t, out.String(), "descriptors of a client")
	out = syncbuf.Buffer{}
	require.Equal(t, exitCannot, execute(t.Context(), []string{"doctor", "-c", "100m"}, &out, &errs))
	require.Contains(t, out.String(), "cannot")
	require.Equal(t, exitCannot, execute(t.Context(), []string{"hold", "-c", "100m"}, &out, &errs), "the run does not begin")
}

func TestCheckWritable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	require.NoError(t, checkWritable(name))
	require.NoFileExists(t, name)
	require.NoError(t, os.WriteFile(name, []byte("precious"), 0o600))
	require.NoError(t, checkWritable(name))
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "precious", string(b))
}

func TestCounts(t *testing.T) {
	for text, want := range map[string]count{"1": 1, "500": 500, "100k": 100_000, "1m": 1_000_000, "1.5K": 1500, "0.5M": 500_000} {
		var c count
		require.NoError(t, c.Set(text))
		require.Equal(t, want, c)
	}
	require.Error(t, new(count).Set("0k9"))
}

func TestResultOnStandardOutput(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		addr := testserver.Serve(t, testserver.Reap(time.Minute, ""))
		var out, errs syncbuf.Buffer
		require.Zero(t, execute(t.Context(), strings.Fields("hold -c 5 --target "+addr+" --timeout 3s --hold 500ms --reap=false --out -"), &out, &errs), "%s", &errs)
		var r result.Result
		require.NoError(t, json.Unmarshal([]byte(out.String()), &r), "stdout has only the result")
		require.Equal(t, result.Passed, r.Verdict.Outcome)
		require.Equal(t, "5", r.Setup.Flags["connections"])
		require.Equal(t, time.Second, r.Setup.Groups[0].Interval, "a heartbeat that fits the timeout")
		require.Contains(t, errs.String(), "hold: 5 connections")
		require.NoFileExists(t, toStdout)
	})
}

func TestEchoPairKeepsAllTurns(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		a, b := testserver.Serve(t, testserver.Reap(time.Minute, "")), testserver.Serve(t, testserver.Reap(time.Minute, ""))
		dir := t.TempDir()
		var out, errs syncbuf.Buffer
		require.Zero(t, execute(t.Context(), strings.Fields("echo -c 5 --target "+a+" --pair "+b+" --for 1s --rounds 2 --timeout 0 --out "+
			filepath.Join(dir, "x.json")), &out, &errs), "%s", &errs)
		require.Contains(t, out.String(), b+" has ")
		require.Contains(t, out.String(), "times the answers of "+a)
		for name, addr := range map[string]string{"x-1a.json": a, "x-1b.json": b, "x-2a.json": a, "x-2b.json": b} {
			r, err := result.Read(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Equal(t, []string{addr}, r.Setup.Targets)
		}
	})
}

// TestInterruptedStallContinuesTheServer ends a run while its server is stopped.
func TestInterruptedStallContinuesTheServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan string, 1)
	go func() {
		defer cancel()
		stopped <- awaitChild("status", "T (stopped)")
	}()
	began := time.Now()
	f := command(t, ctx, "outage -c 20 --timeout 1s --heartbeat 200ms --outage 10m --server "+echoServer())
	require.NotEmpty(t, <-stopped)
	require.Equal(t, exitInterrupted, f.code)
	require.Less(t, time.Since(began), exitTimeout, "the server has ended in an orderly way")
	require.Contains(t, f.out, "output of a server: stopped:")
}

func TestEndingSignals(t *testing.T) {
	require.Subset(t, endingSignals(), []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT})
	require.Equal(t, !signal.Ignored(syscall.SIGHUP), slices.Contains(endingSignals(), os.Signal(syscall.SIGHUP)), "nohup")
}

func TestProgressFitsTheTerminal(t *testing.T) {
	for _, width := range []int{1, 20, 59, 200} {
		shown := progress([]result.Sample{{Open: 1_000_000}}, &result.Group{Lost: 5, OpenFailed: 3}, "silent", 0.5, width)
		line, found := strings.CutPrefix(shown, "\r\x1b[K")
		require.True(t, found)
		require.LessOrEqual(t, len(line), width-1)
		require.NotContains(t, line, "\n")
		require.Equal(t, width == 200, strings.HasSuffix(line, "3 not opened"))
	}
}
