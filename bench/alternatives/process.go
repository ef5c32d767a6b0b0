package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/netty"
	"github.com/idlewheel/idlewheel/bench/internal/process"
)

// lifetime bounds the process of a server, in case that its parent has died.
const lifetime = time.Minute

// A job is the argument of a child.
type job struct {
	Server  string        `json:"server"`
	Timeout time.Duration `json:"timeout"`
	Silence bool          `json:"silence"` // at the end all clients become silent at the same moment
}

// serve runs a server and prints its address. For each line it reads, it collects garbage and
// prints the bytes of heap and stacks.
func serve(j job, in io.Reader, out io.Writer) error {
	time.AfterFunc(lifetime, func() { os.Exit(1) })
	failed := make(chan error, 1)
	started := make(chan string, 1)
	go func() { failed <- find(j.Server).serve(j, func(addr string) { started <- addr }) }()
	select {
	case err := <-failed:
		return fmt.Errorf("%s: %w", j.Server, err)
	case addr := <-started:
		fmt.Fprintln(out, addr)
	}
	reply := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := reply.Encode(process.HeapBytes()); err != nil {
			return err
		}
	}
	return nil // the parent has closed its end
}

// start starts a server of a kind and returns its address.
func start(k kind, j job) (*process.Process, string, error) {
	cmd, err := command(k, j)
	if err != nil {
		return nil, "", err
	}
	p, err := process.Start(cmd)
	if err != nil {
		return nil, "", err
	}
	line, err := p.ReadLine()
	if err != nil {
		return nil, "", errors.Join(err, p.Close())
	}
	return p, strings.TrimPrefix(line, "tcp "), nil
}

// command returns the command of a server, which prints its address: this program, or Netty.
func command(k kind, j job) (*exec.Cmd, error) {
	if k.serve == nil {
		cmd, _, err := netty.Command(nettySource, strconv.FormatInt(j.Timeout.Milliseconds(), 10))
		return cmd, err
	}
	return childCommand(serveVerb, j)
}

// childCommand returns the command of a child process of this program.
func childCommand(verb string, arg any) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(arg)
	return exec.Command(self, verb, string(encoded)), err
}
