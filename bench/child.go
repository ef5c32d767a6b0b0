package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"
)

// childVerb is the hidden first argument of a process that does one job.
const childVerb = "child"

// childTimeout bounds one job, including the time to fill.
const childTimeout = 120 * time.Second

// A job is one work with one subject at one size. The durations are shorter in a quick run.
type job struct {
	Subject string `json:"subject"`
	Work    string `json:"work"`
	N       int    `json:"n"`
	Seed    uint64 `json:"seed"`

	Measure    time.Duration `json:"measure"`  // of operations
	WarmUp     time.Duration `json:"warm_up"`  // of operations, before they are measured
	Settle     time.Duration `json:"settle"`   // after filling
	Patience   time.Duration `json:"patience"` // until a call that does not return fails
	ExpiryLow  time.Duration `json:"expiry_low"`
	ExpiryHigh time.Duration `json:"expiry_high"`
	Hold       time.Duration `json:"hold"`
	Heartbeat  time.Duration `json:"heartbeat"`
}

func newJob(quick bool, round int, w work, c candidate, n int) job {
	j := job{
		Subject: c.name, Work: w.name, N: n, Seed: uint64(round),
		Measure: time.Second, WarmUp: 500 * time.Millisecond, Settle: 300 * time.Millisecond, Patience: 15 * time.Second,
		ExpiryLow: time.Second, ExpiryHigh: 3 * time.Second, Hold: 3 * time.Second, Heartbeat: 5 * time.Second,
	}
	if c.netty {
		j.WarmUp = 2 * time.Second // for the JIT compiler
	}
	if quick {
		j.Measure, j.WarmUp, j.Settle, j.Patience =
			50*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond, 2*time.Second
		j.ExpiryLow, j.ExpiryHigh = 100*time.Millisecond, 300*time.Millisecond
		j.Hold, j.Heartbeat = time.Second, time.Second
	}
	return j
}

// random returns a separate source for each stream, the same for every subject in a round.
func (j job) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(j.Seed, stream)) }

// An outcome is the output of a child.
type outcome struct {
	Metrics metrics `json:"metrics,omitempty"`
	Failure string  `json:"failure,omitempty"`
}

// childMain does a job given as JSON and returns the exit code.
func childMain(args []string, stdout, stderr io.Writer) int {
	stopDefaultWheel()
	time.AfterFunc(childTimeout+10*time.Second, func() { os.Exit(1) }) // if the parent has died
	metrics, err := doJob(args)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if err := json.NewEncoder(stdout).Encode(outcome{Metrics: metrics}); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func doJob(args []string) (metrics, error) {
	if len(args) != 1 {
		return nil, errors.New("child: want one argument, the job")
	}
	var j job
	if err := json.Unmarshal([]byte(args[0]), &j); err != nil {
		return nil, fmt.Errorf("child: %w", err)
	}
	c, ok := findCandidate(j.Subject)
	if !ok {
		return nil, fmt.Errorf("child: no subject %q", j.Subject)
	}
	w, ok := findWork(j.Work)
	if !ok {
		return nil, fmt.Errorf("child: no work %q", j.Work)
	}
	return w.run(j, c)
}

// exitStuck ends a child after its subject has not returned from a call.
func exitStuck(why string) {
	// If it fails, the parent reports that there is no outcome.
	_ = json.NewEncoder(os.Stdout).Encode(outcome{Failure: why})
	os.Exit(0)
}

// runChild does a job in a process of its own. A failure of the job is part of the outcome; the
// error is the error of ctx.
func runChild(ctx context.Context, c candidate, j job, netty nettyProgram) (outcome, error) {
	limited, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	cmd, err := childCommand(limited, c, j, netty)
	if err != nil {
		return outcome{Failure: err.Error()}, nil
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	if limited.Err() != nil {
		return outcome{Failure: fmt.Sprintf("not finished after %v", childTimeout)}, nil
	}
	if err != nil {
		return outcome{Failure: fmt.Sprintf("%v: %s", err, firstLine(stderr.String()))}, nil
	}
	var o outcome
	if err := json.Unmarshal(lastLine(stdout.Bytes()), &o); err != nil {
		return outcome{Failure: fmt.Sprintf("no outcome on stdout: %v", err)}, nil
	}
	return o, nil
}

func childCommand(ctx context.Context, c candidate, j job, netty nettyProgram) (*exec.Cmd, error) {
	if c.netty {
		return netty.command(ctx, j), nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, self, childVerb, string(arg)), nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// lastLine returns the line with the outcome. A subject may have printed something before.
func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}
