package truth

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

// Exit codes of the program.
const (
	exitPassed      = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotValid    = 3
	exitInterrupted = 130
)

// binary is the file of the built program.
var binary string

// serverVerb makes the test binary a server in a process of its own.
const serverVerb = "truth-server"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == serverVerb {
		serveUntilEOF(os.Args[2])
		return
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "truth")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "loadtest")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/idlewheel/idlewheel/loadtest").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "building loadtest: %v\n%s", err, out)
		return 1
	}
	// The program gets SIGHUP also if these tests run under nohup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	flag.Parse()
	_ = flag.Set("test.parallel", needs.Parallel(8)) // the runs wait most of the time
	return m.Run()
}

// A report is the part of the JSON that the tests compare. It is declared here a second time,
// because its names are a promise to other readers.
type report struct {
	Verdict struct {
		Outcome string   `json:"outcome"`
		Causes  []string `json:"causes"`
	} `json:"verdict"`
	Interrupted bool                 `json:"interrupted"`
	Notes       []string             `json:"notes"`
	Groups      []group              `json:"groups"`
	OwnDelay    map[string]histogram `json:"own_delay"`
	Failures    map[string]int       `json:"failures"`
}

type group struct {
	Name       string `json:"name"`
	Opened     int    `json:"opened"`
	OpenFailed int    `json:"open_failed"`
	Messages   int    `json:"messages"`
	Answers    int    `json:"answers"`
	Lost       int    `json:"lost"`
	Starved    int    `json:"starved"`
	Reaped     int    `json:"reaped"`
	Early      int    `json:"early"`
	EarliestBy int64  `json:"earliest_by_ns"`
	Kept       int    `json:"kept"`
	Reset      int    `json:"reset"`
	Told       int    `json:"told"`
	Garbled    int    `json:"garbled"`
	Unanswered int    `json:"unanswered"`
	Doubled    int    `json:"doubled"`
	Skipped    int    `json:"skipped"`
	Swapped    int    `json:"swapped"`
	Exchanges  map[string]struct {
		Sent        int `json:"sent"`
		Answered    int `json:"answered"`
		Outstanding int `json:"outstanding"`
		Unanswered  int `json:"unanswered"`
	} `json:"exchanges"`
	Connect  histogram `json:"connect"`
	Latency  map[string]struct{ Corrected, Raw histogram }
	Lateness histogram `json:"lateness"`
}

type histogram struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
}

// sent returns the numbers of messages sent and answered in all phases.
func (g *group) sent() (sent, answered int) {
	for _, e := range g.Exchanges {
		sent += e.Sent
		answered += e.Answered
	}
	return sent, answered
}

// group returns the group with a name.
func (r *report) group(t testing.TB, name string) group {
	t.Helper()
	for _, g := range r.Groups {
		if g.Name == name {
			return g
		}
	}
	require.FailNow(t, "no group "+name)
	return group{}
}

// A process is a running program.
type process struct {
	cmd    *exec.Cmd
	out    bytes.Buffer // of stdout and stderr
	result string       // file
}

// A finished process has a report, unless it refused to run.
type finished struct {
	code int
	text string
	file string
	report
}

var connectionsOption = regexp.MustCompile(` -c (\d+) `)

// start starts the program with a command line. A server in this process has a descriptor for each
// of its connections.
func start(t testing.TB, line string) *process {
	t.Helper()
	if option := connectionsOption.FindStringSubmatch(line); option != nil {
		n, err := strconv.Atoi(option[1])
		require.NoError(t, err)
		needs.Descriptors(t, n)
	}
	p := &process{result: filepath.Join(t.TempDir(), "result.json")}
	args := strings.Fields(line)
	if args[0] != "merge" {
		args = append(args, "--out", p.result)
	}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// wait waits for the end of the program.
func (p *process) wait(t testing.TB) finished {
	t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	err := p.cmd.Wait()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		require.NoError(t, err)
	}
	f := finished{code: p.cmd.ProcessState.ExitCode(), text: p.out.String(), file: p.result}
	if b, err := os.ReadFile(p.result); err == nil {
		require.NoError(t, json.Unmarshal(b, &f.report))
	}
	return f
}

// workers returns the client processes.
func (p *process) workers(t testing.TB) (pids []int) {
	t.Helper()
	pid := p.cmd.Process.Pid
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, name := range files {
		b, _ := os.ReadFile(name) // the thread may have ended
		for word := range strings.FieldsSeq(string(b)) {
			child, err := strconv.Atoi(word)
			require.NoError(t, err)
			pids = append(pids, child)
		}
	}
	return pids
}

// run runs the program against a server with faults.
func run(t testing.TB, f func() faults, line string) (want truth, got finished) {
	t.Helper()
	s := serve(t, f())
	got = start(t, line+" --target "+s.addr).wait(t)
	return s.truth(), got
}

// runLiving is run with an outcome. It returns the group of living connections.
func runLiving(t testing.TB, code int, f func() faults, line string) (want truth, living group) {
	t.Helper()
	want, got := run(t, f, line)
	got.requireOutcome(t, code)
	return want, got.group(t, "living")
}

// requireOutcome checks that the JSON, the text and the exit code agree about the outcome.
func (f *finished) requireOutcome(t testing.TB, code int) {
	t.Helper()
	outcome := map[int]string{exitPassed: "passed", exitFailed: "failed", exitNotValid: "not valid"}[code]
	require.Equal(t, code, f.code, f.text)
	require.Equal(t, outcome, f.Verdict.Outcome, f.text)
	require.Contains(t, f.text, outcome)
	require.Equal(t, code == exitPassed, len(f.Verdict.Causes) == 0, "a cause unless passed: %v", f.Verdict.Causes)
}

// within requires got to be from least to most.
func within(t testing.TB, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		require.FailNowf(t, what, "%v is not within %v and %v", got, least, most)
	}
}
