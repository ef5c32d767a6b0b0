// Package truth tests whether loadtest tells the truth. Its tests run the built program against
// servers with known faults that keep a record of their own, and compare the report and the exit
// code with the record.
package truth

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
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
	_ = flag.Set("test.parallel", needs.Parallel(16)) // the runs wait most of the time
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
	Latency  map[string]struct{ Corrected, Raw, Unanswered, All histogram }
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
	p.cmd = exec.Command(binary, append(strings.Fields(line), "--out", p.result)...)
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
	f := finished{code: p.cmd.ProcessState.ExitCode(), text: p.out.String()}
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

// runLiving is run with an outcome. It returns the group of connections with heartbeats.
func runLiving(t testing.TB, code int, f func() faults, line string) (want truth, living group) {
	t.Helper()
	want, got := run(t, f, line)
	got.requireOutcome(t, code)
	return want, got.group(t, "heartbeat")
}

// requireOutcome checks that the JSON, the text and the exit code agree about the outcome.
func (f *finished) requireOutcome(t testing.TB, code int) {
	t.Helper()
	outcome := map[int]string{exitPassed: "passed", exitFailed: "failed", exitNotValid: "not valid"}[code]
	if code != exitNotValid && f.code == exitNotValid && strings.Contains(f.text, "loadtest itself was late") {
		fair.Busy(t, "%s", f.text)
	}
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

// Faults describe how a server differs from an echo server without a reaper. The zero value is such
// a server. Functions that are nil stand for correct behaviour. Connections are numbered from 0 in
// the order of accept, messages from 0 per connection.
type faults struct {
	timeout time.Duration            // idle timeout; 0: none
	offset  time.Duration            // added to the timeout; negative: the server reaps early
	limit   int                      // the listener is closed after so many connections; 0: never
	refuse  func(n int) bool         // reset at accept
	answer  func(p *peer, m message) // instead of an echo
	reap    func(p *peer)            // before the close of a dead connection
	pace    time.Duration            // time to handle a message, one after the other
}

// A message is a line.
type message struct {
	n    int
	line []byte
}

// An ending is how a connection ended.
type ending string

const (
	unended ending = ""
	reaped  ending = "reaped by the server"
	killed  ending = "killed by the server"
	refused ending = "refused by the server"
	left    ending = "FIN of the client"
	broken  ending = "RST of the client"
)

// A record is what happened on a connection, as the server saw it.
type record struct {
	opened, lastByte, closed time.Time
	messages, answers        int // an answer is correct
	how                      ending
}

// A server is an echo server with faults. Safe for concurrent use.
type server struct {
	faults
	addr    string
	ln      *net.TCPListener
	running sync.WaitGroup
	serial  sync.Mutex // held while a message is handled, if there is a pace

	mu    sync.Mutex
	peers []*peer // guarded by mu
}

// A peer is a connection of a server.
type peer struct {
	s      *server
	n      int
	conn   *net.TCPConn
	record // guarded by s.mu
}

// serve runs a server until the end of the test.
func serve(t testing.TB, f faults) *server {
	t.Helper()
	s, err := listen(f)
	require.NoError(t, err)
	t.Cleanup(s.close)
	return s
}

func listen(f faults) (*server, error) {
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	s := &server{faults: f, ln: ln, addr: ln.Addr().String()}
	s.running.Go(s.accept)
	return s, nil
}

// close ends the server and its connections.
func (s *server) close() {
	_ = s.ln.Close()
	s.killAll()
	s.running.Wait()
}

// accept accepts connections until the listener is closed.
func (s *server) accept() {
	for n := 0; s.limit == 0 || n < s.limit; n++ {
		conn, err := s.ln.AcceptTCP()
		if err != nil {
			return
		}
		p := &peer{s: s, n: n, conn: conn, record: record{opened: time.Now()}}
		s.mu.Lock()
		s.peers = append(s.peers, p)
		s.mu.Unlock()
		if s.refuse == nil || !s.refuse(n) {
			s.running.Go(p.serve)
			continue
		}
		_ = conn.SetLinger(0)
		p.close(refused)
	}
	_ = s.ln.Close()
}

// serve reads messages until the connection ends.
func (p *peer) serve() {
	s, buf, used := p.s, make([]byte, 1<<16), 0
	p.postpone(time.Now())
	for n := 0; ; {
		got, err := p.conn.Read(buf[used:])
		if err != nil {
			p.end(err)
			return
		}
		if s.pace > 0 {
			s.serial.Lock()
			for until := time.Now().Add(s.pace); time.Now().Before(until); { // a sleep would be longer
			}
			s.serial.Unlock()
		}
		now := time.Now()
		p.postpone(now)
		used += got
		whole := bytes.LastIndexByte(buf[:used], '\n') + 1
		lines := slices.Collect(bytes.Lines(buf[:whole]))
		p.note(func(r *record) {
			r.lastByte = now
			r.messages += len(lines)
		})
		for _, line := range lines {
			if s.answer == nil {
				p.echo(line)
			} else {
				s.answer(p, message{n, slices.Clone(line)})
			}
			n++
		}
		used = copy(buf, buf[whole:used])
	}
}

// postpone moves the deadline of the connection.
func (p *peer) postpone(now time.Time) {
	if p.s.timeout > 0 {
		_ = p.conn.SetReadDeadline(now.Add(p.s.timeout + p.s.offset))
	}
}

// end closes the connection after an error of a read.
func (p *peer) end(err error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.note(func(r *record) { // before the client can see it
			if r.how == unended {
				r.how, r.closed = reaped, time.Now()
			}
		})
		if p.s.reap != nil {
			p.s.reap(p)
		}
		_ = p.conn.Close()
	case errors.Is(err, syscall.ECONNRESET):
		p.close(broken)
	default:
		p.close(left)
	}
}

// close closes the connection and records why, unless it is closed already.
func (p *peer) close(how ending) {
	p.note(func(r *record) {
		if r.how == unended {
			r.how, r.closed = how, time.Now()
			_ = p.conn.Close()
		}
	})
}

// echo sends a correct answer.
func (p *peer) echo(line []byte) {
	if _, err := p.conn.Write(line); err == nil {
		p.note(func(r *record) { r.answers++ })
	}
}

func (p *peer) note(change func(r *record)) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	change(&p.record)
}

// killAll closes all connections that are open.
func (s *server) killAll() {
	s.mu.Lock()
	peers := slices.Clone(s.peers)
	s.mu.Unlock()
	for _, p := range peers {
		p.close(killed)
	}
}

// records returns the records of all connections.
func (s *server) records() (all []record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		all = append(all, p.record)
	}
	return all
}

// A truth is the sum of the records of a server.
type truth struct {
	opened            int
	messages, answers int
	endings           map[ending]int
	lateness          []time.Duration // of the reaps, sorted
}

// truth sums the records.
func (s *server) truth() truth {
	sum := truth{endings: map[ending]int{}}
	for _, r := range s.records() {
		sum.opened++
		sum.messages += r.messages
		sum.answers += r.answers
		sum.endings[r.how]++
		if r.how == reaped && !r.lastByte.IsZero() {
			sum.lateness = append(sum.lateness, r.closed.Sub(r.lastByte)-s.timeout)
		}
	}
	slices.Sort(sum.lateness)
	return sum
}

// quantile returns the duration that the part q of the sorted durations does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// await waits until the records satisfy a condition.
func (s *server) await(t testing.TB, what string, holds func(all []record) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(s.records()); {
		require.False(t, time.Now().After(deadline), "%s: not within 20 s", what)
		time.Sleep(5 * time.Millisecond)
	}
}
