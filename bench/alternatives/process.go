package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	return fmt.Errorf("%s: %w", j.Server, find(j.Server).serve(j))
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

// startServer starts a server of a kind, which is this program or Netty. It prints its address.
func startServer(k kind, j job) (p *process.Process, addr string, err error) {
	if k.serve == nil {
		var cmd *exec.Cmd
		cmd, _, err = process.Netty(nettySource, strconv.FormatInt(j.Timeout.Milliseconds(), 10))
		if err == nil {
			p, err = process.Start(cmd)
		}
	} else {
		j.Server = k.name
		p, err = startChild(j)
	}
	if err != nil {
		return nil, "", err
	}
	if addr, err = p.ReadLine(); err != nil {
		return nil, "", errors.Join(err, p.Close())
	}
	return p, addr, nil
}
