// Package crew is the processes of a load test: clients, each with one load.Loop, and the servers that it launches. One process may not
// have as many descriptors as there are to be connections.
package processes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
)

// ClientVerb is the hidden verb of the command that makes a worker of it.
const ClientVerb = "worker"

// Work is the main function of a worker: it reads a load.Plan and then load.Commands, and writes load.Reports, as JSON. When nothing more
// is to be read, whoever has started it is gone, and it ends as well.
func RunClient(in io.Reader, out io.Writer) error {
	if _, err := machine.RaiseDescriptors(); err != nil {
		return err
	}
	debug.SetGCPercent(20) // what it is to save is memory; there is little to collect
	reports, input := json.NewEncoder(out), json.NewDecoder(in)
	if err := reports.Encode(load.Report{}); err != nil { // it is there, and has taken no memory yet
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
	commands := make(chan load.Command, 16)
	go func() { // ends with the process
		defer close(commands)
		for {
			var cmd load.Command
			if input.Decode(&cmd) != nil {
				loop.Wake()
				return
			}
			commands <- cmd
			loop.Wake()
		}
	}()
	return errors.Join(loop.Run(commands), failed)
}

// A Crew is the clients of a run. Its methods may be called by one goroutine at a time.
type Clients struct {
	clients []*client
}

type client struct {
	cmd      *exec.Cmd
	commands *json.Encoder
	stdin    io.Closer
	err      chan error // what its end was

	mu       sync.Mutex
	last     load.Report // guarded by mu
	finished bool        // guarded by mu; last is the last
}

// ready is how long a worker may take to start.
const startTimeout = 20 * time.Second

// Start starts clients. They wait for Begin.
func StartClients(n int) (*Clients, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Clients{}
	for range n {
		w, err := startClient(exe)
		if err != nil {
			c.Kill()
			return nil, fmt.Errorf("starting worker %d of %d: %w", len(c.clients)+1, n, err)
		}
		c.clients = append(c.clients, w)
	}
	return c, nil
}

func startClient(exe string) (*client, error) {
	w := &client{cmd: exec.Command(exe, ClientVerb), err: make(chan error, 1)}
	w.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1") // its loop need not be interrupted for the one goroutine beside it
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = childAttr()
	stdin, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	w.commands, w.stdin = json.NewEncoder(stdin), stdin
	reports := json.NewDecoder(stdout)
	late := time.AfterFunc(startTimeout, func() { _ = w.cmd.Process.Kill() })
	err = reports.Decode(&w.last)
	if !late.Stop() || err != nil {
		_ = w.cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("it is not ready: %w", err), w.cmd.Wait())
	}
	go w.listen(reports)
	return w, nil
}

// alone is how children are started: not in the group that a terminal interrupts, since they are told to end, but not outliving this
// process. That is the thread that has started them, which must be that of the main goroutine.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// listen takes reports until the worker ends.
func (w *client) listen(reports *json.Decoder) {
	for {
		var r load.Report
		if reports.Decode(&r) != nil {
			break
		}
		w.mu.Lock()
		w.last, w.finished = r, r.Last
		w.mu.Unlock()
	}
	w.err <- w.cmd.Wait()
}

// Pids returns the processes of the clients.
func (c *Clients) Pids() (pids []int) {
	for _, w := range c.clients {
		pids = append(pids, w.cmd.Process.Pid)
	}
	return pids
}

// Begin gives each worker its part of a plan.
func (c *Clients) Begin(plan load.Plan) error {
	var errs []error
	for i, part := range split(plan, len(c.clients)) {
		if err := c.clients[i].commands.Encode(part); err != nil {
			errs = append(errs, fmt.Errorf("worker %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// split divides a plan into equal parts.
func split(plan load.Plan, n int) []load.Plan {
	parts := make([]load.Plan, n)
	first := 0
	for i := range parts {
		part := plan
		part.Rate = plan.Rate / float64(n)
		part.First = first
		part.Specs = nil
		for _, s := range plan.Specs {
			total := s.Connections
			s.Connections = total*(i+1)/n - total*i/n
			first += s.Connections
			part.Specs = append(part.Specs, s)
		}
		parts[i] = part
	}
	return parts
}

// Tell tells all clients something. One that has ended is not told.
func (c *Clients) Tell(cmd load.Command) {
	for _, w := range c.clients {
		_ = w.commands.Encode(cmd)
	}
}

// Report returns what the clients have found so far, and whether all of them still work.
func (c *Clients) Report() (sum load.Report, working bool) {
	working = true
	for _, w := range c.clients {
		w.mu.Lock()
		sum.Add(&w.last)
		w.mu.Unlock()
		select {
		case err := <-w.err:
			w.err <- err
			working = false
		default:
		}
	}
	return sum, working
}

// Finish lets the clients close what they have, and returns what they have found at last. Those that do not end in time are killed.
func (c *Clients) Finish(within time.Duration) (load.Report, error) {
	c.Tell(load.Command{Finish: true})
	late := time.AfterFunc(within, c.Kill)
	defer late.Stop()
	var errs []error
	var sum load.Report
	for i, w := range c.clients {
		_ = w.stdin.Close()
		err := <-w.err
		w.err <- err
		sum.Add(&w.last)
		if !w.finished {
			errs = append(errs, fmt.Errorf("worker %d has ended before the run: %w", i+1, errors.Join(err, errNoReport)))
		}
	}
	return sum, errors.Join(errs...)
}

var errNoReport = errors.New("there is no last report of it, and what it did is counted in part only")

// Kill ends the clients at once.
func (c *Clients) Kill() {
	for _, w := range c.clients {
		_ = w.cmd.Process.Kill()
	}
}
