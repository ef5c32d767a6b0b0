package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/process"
)

const (
	childVerb = "child"     // the hidden first argument of a child process; the second one is its job
	lifetime  = time.Minute // of a child process, in case that its parent has died
)

// A job is what a child process does: it is a server, or the living clients of one.
type job struct {
	Server  string // name of its kind
	Timeout time.Duration
	Grace   time.Duration // OutageGrace of idle and idlenet

	Living int    // if not 0, the number of living clients
	Addr   string // of their server
}

// runAsChild runs a child process and ends it, if this is one.
func runAsChild() {
	if len(os.Args) != 3 || os.Args[1] != childVerb {
		return
	}
	var j job
	err := json.Unmarshal([]byte(os.Args[2]), &j)
	if err == nil {
		err = j.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (j job) run() error {
	time.AfterFunc(lifetime, func() { os.Exit(1) })
	if j.Living > 0 {
		return live(j.Addr, j.Living)
	}
	go answer()
	i := slices.IndexFunc(kinds(), func(k kind) bool { return k.name == j.Server })
	return fmt.Errorf("%s has ended: %v", j.Server, kinds()[i].serve(j))
}

// announce tells the parent that a server can be reached.
func announce(addr net.Addr) { fmt.Printf("%q\n", addr) }

// answer collects garbage and prints the bytes of heap and stacks for each line that it reads.
func answer() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(process.HeapBytes())
	}
	os.Exit(0) // the parent has closed its end
}

// start starts the process of a job: this program, or the one with Netty.
func start(j job) (*process.Process, error) {
	encoded, err := json.Marshal(j)
	cmd := exec.Command("/proc/self/exe", childVerb, string(encoded))
	if j.Server == netty {
		cmd, _, err = process.Netty(nettySource, fmt.Sprint(j.Timeout.Milliseconds()))
	}
	if err != nil {
		return nil, err
	}
	return process.Start(cmd)
}
