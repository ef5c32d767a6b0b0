package processes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Package is the server that is built and launched.
const Package = "github.com/idlewheel/idlewheel/cmd/echo-heartbeat"

// Servers are the processes of an echo server that were launched. Its methods may be called by one goroutine at a time.
type Servers struct {
	Targets []string // where they listen
	dir     string   // of the binary
	all     []*server
}

type server struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	errs   *tail
	output []string // what it said at its end
	exited chan error
}

// A Launch is what to launch.
type Launch struct {
	Count     int
	Binary    string   // if empty, Package is built
	Args      []string // of serve, without the address
	PortsEach bool     // each has a port of its own, instead of one for all
}

// started is how long a server may take to listen.
const listenTimeout = 20 * time.Second

// StartServers builds the server and starts it as often as it is asked for. The caller calls Stop.
func StartServers(ctx context.Context, l Launch) (*Servers, error) {
	s := &Servers{}
	if l.Binary == "" {
		var err error
		if s.dir, err = os.MkdirTemp("", "loadtest"); err != nil {
			return nil, err
		}
		l.Binary = filepath.Join(s.dir, "echo-heartbeat")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", l.Binary, Package).CombinedOutput(); err != nil {
			s.Stop(0)
			return nil, fmt.Errorf("building %s: %w: %s: run it in a clone of the repository, or name a --server or a --target",
				Package, err, bytes.TrimSpace(out))
		}
	}
	addr := "127.0.0.1:0"
	for range l.Count {
		at, err := s.start(l, addr)
		if err != nil {
			s.Stop(0)
			return nil, fmt.Errorf("starting server %d of %d: %w", len(s.all)+1, l.Count, err)
		}
		if !l.PortsEach {
			addr = at
		}
		if len(s.Targets) == 0 || l.PortsEach {
			s.Targets = append(s.Targets, at)
		}
	}
	return s, nil
}

var listening = regexp.MustCompile(`^listening on (\S+),`)

// start starts one and waits until it listens.
func (s *Servers) start(l Launch, addr string) (at string, err error) {
	args := append([]string{"serve", "--addr", addr}, l.Args...)
	if l.Count > 1 && !l.PortsEach {
		args = append(args, "--share-port")
	}
	p := &server{cmd: exec.Command(l.Binary, args...), errs: &tail{}, exited: make(chan error, 1)}
	p.cmd.Stderr = p.errs
	p.cmd.SysProcAttr = childAttr()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := p.cmd.Start(); err != nil {
		return "", err
	}
	p.lines = bufio.NewScanner(out)
	late := time.AfterFunc(listenTimeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if p.lines.Scan() {
		if found := listening.FindStringSubmatch(p.lines.Text()); found != nil {
			s.all = append(s.all, p)
			go p.listen()
			return found[1], nil
		}
	}
	_ = p.cmd.Process.Kill()
	return "", errors.Join(fmt.Errorf("it does not say where it listens: %s %s", p.lines.Text(), p.errs), p.cmd.Wait())
}

// listen takes what the server says until it ends.
func (p *server) listen() {
	for p.lines.Scan() {
		p.output = append(p.output, p.lines.Text())
	}
	p.exited <- p.cmd.Wait()
}

// Pids returns the processes of the servers.
func (s *Servers) Pids() (pids []int) {
	if s == nil {
		return nil
	}
	for _, p := range s.all {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// Died returns an error if a server has ended by itself.
func (s *Servers) Died() error {
	if s == nil {
		return nil
	}
	for i, p := range s.all {
		select {
		case err := <-p.exited:
			p.exited <- err
			return fmt.Errorf("server %d of %d has ended (%v): %s", i+1, len(s.all), err, p.errs)
		default:
		}
	}
	return nil
}

// Stop ends the servers, by force those that have not ended in time, and returns their last words.
func (s *Servers) Stop(within time.Duration) (said []string) {
	if s == nil {
		return nil
	}
	for _, p := range s.all {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may be stopped
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	kill := time.AfterFunc(within, func() {
		for _, p := range s.all {
			_ = p.cmd.Process.Kill()
		}
	})
	defer kill.Stop()
	for _, p := range s.all {
		<-p.exited
		p.exited <- nil
		said = append(said, p.output...)
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
	return said
}

// A tail keeps the end of what is written to it. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

// tailSize is how much of it.
const tailSize = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
