package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/process"
)

// lifetime bounds a child process, in case that its parent has died.
const lifetime = time.Minute

// A job is what a child process does: it is a server, or the living clients of one.
type job struct {
	Server  string // name of its kind
	Timeout time.Duration
	Grace   time.Duration // OutageGrace of idle and idlenet

	Living int    // if not 0, the number of living clients
	Addr   string // of their server
}

func (j job) run() error {
	time.AfterFunc(lifetime, func() { os.Exit(1) })
	if j.Living > 0 {
		return live(j.Addr, j.Living)
	}
	go answer()
	i := slices.IndexFunc(kinds(), func(k kind) bool { return k.name == j.Server })
	return fmt.Errorf("%s: %w", j.Server, kinds()[i].serve(j))
}

// answer collects garbage and prints the bytes of heap and stacks for each line that it reads.
func answer() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(process.HeapBytes())
	}
	os.Exit(0) // the parent has closed its end
}

// startChild starts this program with a job.
func startChild(j job) (*process.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return process.Start(exec.Command(self, childVerb, string(encoded)))
}

func startNetty(j job) (*process.Process, error) {
	cmd, _, err := process.Netty(nettySource, strconv.FormatInt(j.Timeout.Milliseconds(), 10))
	if err != nil {
		return nil, err
	}
	return process.Start(cmd)
}

// startServer starts a server of a kind, which prints its address.
func startServer(k kind, j job) (p *process.Process, addr string, err error) {
	start := startChild
	if k.serve == nil {
		start = startNetty
	}
	j.Server = k.name
	if p, err = start(j); err != nil {
		return nil, "", err
	}
	if addr, err = p.ReadLine(); err != nil {
		return nil, "", errors.Join(err, p.Close())
	}
	return p, addr, nil
}
