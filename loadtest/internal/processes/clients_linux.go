// Package processes starts and controls the processes of a load test: client processes, each with
// one load.Loop, and the servers that the test launches. There are several because the connections
// can exceed the descriptor limit of one process.
package processes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// ClientVerb is the hidden verb that makes the command a client process.
const ClientVerb = "worker"

// RunClient is the main function of a client process. It reads a load.Plan and then load.Commands,
// and writes load.Reports, all as JSON. It returns at the end of the input, so a client process
// does not outlive its parent.
func RunClient(in io.Reader, out io.Writer) error {
	reports, input := json.NewEncoder(out), json.NewDecoder(in)
	// The first report says that the process runs. Its memory is measured before it reads the plan.
	if err := reports.Encode(load.Report{}); err != nil {
		return err
	}
	var plan load.Plan
	if err := input.Decode(&plan); err != nil {
		return fmt.Errorf("reading the plan: %w", err)
	}
	var failed error
	loop, err := load.NewLoop(plan, func(r load.Report) { failed = errors.Join(failed, reports.Encode(r)) })
	if err != nil {
		return err
	}
	go func() { // ends with the process
		for finish := false; !finish; {
			var cmd load.Command
			if input.Decode(&cmd) != nil {
				cmd = load.Command{Finish: true}
			}
			finish = cmd.Finish
			loop.Tell(cmd)
		}
	}()
	return errors.Join(loop.Run(), failed)
}

// Clients are the client processes of a run. Not safe for concurrent use.
type Clients struct {
	Pids    []int // their IDs
	clients []*client
}

type client struct {
	child
	commands *json.Encoder

	mu     sync.Mutex
	last   load.Report      // guarded by mu
	recent result.Histogram // guarded by mu; latency since it was taken
}

// Start starts n client processes. They wait for Begin. With apart the first one has the last
// processor for itself, and the others have the rest, if there are several. The caller must call
// Finish or Kill, also after an error.
func (c *Clients) Start(n int, apart bool) error {
	for i := range n {
		w, err := startClient(apart, i == 0)
		if err != nil {
			return fmt.Errorf("starting client process %d of %d: %w", i+1, n, err)
		}
		c.clients = append(c.clients, w)
		c.Pids = append(c.Pids, w.cmd.Process.Pid)
	}
	return nil
}

// pin lets this thread, and the processes that it starts, run on the last processor only, or on the
// others. Without the right to that the kernel chooses. restore takes it back.
func pin(last bool) (restore func()) {
	var before, after unix.CPUSet
	if unix.SchedGetaffinity(0, &before) != nil || before.Count() < 2 {
		return func() {}
	}
	end := len(before) * 64
	for !before.IsSet(end) {
		end--
	}
	if after.Set(end); !last {
		after = before
		after.Clear(end)
	}
	_ = unix.SchedSetaffinity(0, &after)
	return func() { _ = unix.SchedSetaffinity(0, &before) }
}

// startClient starts a client process, and with apart pins it to the last processor or the others.
func startClient(apart, last bool) (*client, error) {
	if apart {
		defer pin(last)()
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w, cmd := &client{}, exec.Command(exe, ClientVerb)
	// The loop occupies one processor while it waits, and a goroutine beside it reads commands:
	// preemption signals would only cost CPU time. Memory matters, and there is little garbage.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2", "GODEBUG=asyncpreemptoff=1", "GOGC=20")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	w.commands = json.NewEncoder(stdin)
	return w, w.start(cmd, w.read)
}

// read handles a report.
func (w *client) read(line []byte) error {
	var r load.Report
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = r
	w.recent.Add(r.Recent)
	return nil
}

// Begin sends each client process its part of the plan.
func (c *Clients) Begin(plan load.Plan) error {
	for i, part := range split(plan, len(c.clients)) {
		if err := c.clients[i].commands.Encode(part); err != nil {
			return fmt.Errorf("client process %d: %w", i+1, err)
		}
	}
	return nil
}

// split divides a plan into n equal parts. If it has groups that are apart, the first part has
// these and nothing else.
func split(plan load.Plan, n int) (parts []load.Plan) {
	var apart, together []load.Spec
	first, total := 0, 0
	for _, s := range plan.Specs {
		total += s.Connections
		if s.Apart && n > 1 {
			apart = append(apart, s)
			first += s.Connections
		} else {
			together = append(together, s)
		}
	}
	if len(apart) > 0 {
		part := plan
		part.Specs = apart
		part.Rate = plan.Rate * float64(first) / float64(total)
		plan.Rate -= part.Rate
		parts = append(parts, part)
		n--
	}
	for i := range n {
		part := plan
		part.Rate = plan.Rate / float64(n)
		part.First = first
		part.Specs = nil
		for _, s := range together {
			s.Connections = s.Connections*(i+1)/n - s.Connections*i/n
			first += s.Connections
			part.Specs = append(part.Specs, s)
		}
		parts = append(parts, part)
	}
	return parts
}

// Tell sends a command to all client processes. A process that has ended is skipped.
func (c *Clients) Tell(cmd load.Command) {
	for _, w := range c.clients {
		_ = w.commands.Encode(cmd)
	}
}

// Report returns the sum of the latest reports, and whether all client processes are running.
func (c *Clients) Report() (sum result.Counts, working bool) {
	working = true
	for _, w := range c.clients {
		w.mu.Lock()
		sum.Add(&w.last.Counts)
		w.mu.Unlock()
		working = working && !w.ended()
	}
	return sum, working
}

// TakeLatency returns the latencies since the last call.
func (c *Clients) TakeLatency() *result.Histogram {
	var sum result.Histogram
	for _, w := range c.clients {
		w.mu.Lock()
		sum.Add(&w.recent)
		w.recent = result.Histogram{}
		w.mu.Unlock()
	}
	return &sum
}

// Finish makes the client processes close their connections, and returns the sum of their final
// reports. They wait for answers under way, at most for the time drain. Processes that run for
// longer than within after that are killed.
func (c *Clients) Finish(drain, within time.Duration) (result.Counts, error) {
	c.Tell(load.Command{Finish: true, Drain: drain})
	late := time.AfterFunc(drain+within, c.Kill)
	defer late.Stop()
	var errs []error
	var sum result.Counts
	for i, w := range c.clients {
		<-w.done
		sum.Add(&w.last.Counts)
		if !w.last.Last {
			missing := errors.New("its final report is missing, so its counts are incomplete")
			errs = append(errs, fmt.Errorf("client process %d ended before the run: %w", i+1, errors.Join(w.err, missing)))
		}
	}
	return sum, errors.Join(errs...)
}

// Kill kills the client processes.
func (c *Clients) Kill() {
	for _, w := range c.clients {
		w.kill()
	}
}
