// Package crew is the processes of a load test: workers, each with one load.Loop, and the servers that it launches. One process may not
// have as many descriptors as there are to be connections.
package crew

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

// Verb is the hidden verb of the command that makes a worker of it.
const Verb = "worker"

// Work is the main function of a worker: it reads a load.Plan and then load.Commands, and writes load.Reports, as JSON. When nothing more
// is to be read, whoever has started it is gone, and it ends as well.
func Work(in io.Reader, out io.Writer) error {
	if _, err := machine.RaiseDescriptors(); err != nil {
		return err
	}
	debug.SetGCPercent(20) // what it is to save is memory; there is little to collect
	reports, commands := json.NewEncoder(out), json.NewDecoder(in)
	if err := reports.Encode(load.Report{}); err != nil { // it is there, and has taken no memory yet
		return err
	}
	var plan load.Plan
	if err := commands.Decode(&plan); err != nil {
		return fmt.Errorf("reading the plan: %w", err)
	}
	var failed error
	loop, err := load.NewLoop(plan, func(r load.Report) { failed = errors.Join(failed, reports.Encode(r)) })
	if err != nil {
		return err
	}
	orders := make(chan load.Command, 16)
	go func() { // ends with the process
		defer close(orders)
		for {
			var cmd load.Command
			if commands.Decode(&cmd) != nil {
				loop.Wake()
				return
			}
			orders <- cmd
			loop.Wake()
		}
	}()
	return errors.Join(loop.Run(orders), failed)
}

// A Crew is the workers of a run. Its methods may be called by one goroutine at a time.
type Crew struct {
	workers []*worker
}

type worker struct {
	cmd   *exec.Cmd
	plan  *json.Encoder
	stdin io.Closer
	err   chan error // what its end was

	mu   sync.Mutex
	last load.Report // guarded by mu
	seen bool        // guarded by mu; last is the last
}

// ready is how long a worker may take to start.
const ready = 20 * time.Second

// Start starts workers. They wait for Begin.
func Start(n int) (*Crew, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Crew{}
	for range n {
		w, err := startWorker(exe)
		if err != nil {
			c.Kill()
			return nil, fmt.Errorf("starting worker %d of %d: %w", len(c.workers)+1, n, err)
		}
		c.workers = append(c.workers, w)
	}
	return c, nil
}

func startWorker(exe string) (*worker, error) {
	w := &worker{cmd: exec.Command(exe, Verb), err: make(chan error, 1)}
	w.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1") // its loop need not be interrupted for the one goroutine beside it
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = alone()
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
	w.plan, w.stdin = json.NewEncoder(stdin), stdin
	reports := json.NewDecoder(stdout)
	late := time.AfterFunc(ready, func() { _ = w.cmd.Process.Kill() })
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
func alone() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// listen takes reports until the worker ends.
func (w *worker) listen(reports *json.Decoder) {
	for {
		var r load.Report
		if reports.Decode(&r) != nil {
			break
		}
		w.mu.Lock()
		w.last, w.seen = r, r.Last
		w.mu.Unlock()
	}
	w.err <- w.cmd.Wait()
}

// Pids returns the processes of the workers.
func (c *Crew) Pids() (pids []int) {
	for _, w := range c.workers {
		pids = append(pids, w.cmd.Process.Pid)
	}
	return pids
}

// Begin gives each worker its part of a plan.
func (c *Crew) Begin(plan load.Plan) error {
	var errs []error
	for i, part := range split(plan, len(c.workers)) {
		if err := c.workers[i].plan.Encode(part); err != nil {
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

// Tell tells all workers something. One that has ended is not told.
func (c *Crew) Tell(cmd load.Command) {
	for _, w := range c.workers {
		_ = w.plan.Encode(cmd)
	}
}

// Report returns what the workers have found so far, and whether all of them still work.
func (c *Crew) Report() (sum load.Report, working bool) {
	working = true
	for _, w := range c.workers {
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

// Finish lets the workers close what they have, and returns what they have found at last. Those that do not end in time are killed.
func (c *Crew) Finish(within time.Duration) (load.Report, error) {
	c.Tell(load.Command{Finish: true})
	late := time.AfterFunc(within, c.Kill)
	defer late.Stop()
	var errs []error
	var sum load.Report
	for i, w := range c.workers {
		_ = w.stdin.Close()
		err := <-w.err
		w.err <- err
		sum.Add(&w.last)
		if !w.seen {
			errs = append(errs, fmt.Errorf("worker %d has ended before the run: %w", i+1, errors.Join(err, errNoReport)))
		}
	}
	return sum, errors.Join(errs...)
}

var errNoReport = errors.New("there is no last report of it, and what it did is counted in part only")

// Kill ends the workers at once.
func (c *Crew) Kill() {
	for _, w := range c.workers {
		_ = w.cmd.Process.Kill()
	}
}
