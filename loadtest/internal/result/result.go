// Package result is what a load test has found: it is written as JSON, read again, added up over machines, and shown.
package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Schema is the version of the form that results are written in. One with a higher version than that is refused.
const Schema = 1

// A Result is one run, or several that were added up.
type Result struct {
	Schema      int           `json:"schema"`
	Verb        string        `json:"verb"`
	Command     string        `json:"command"` // as it was typed
	Began       time.Time     `json:"began"`
	Took        time.Duration `json:"took_ns"`
	Interrupted bool          `json:"interrupted,omitempty"`
	Errors      []string      `json:"errors,omitempty"` // what went wrong in the run itself
	Notes       []string      `json:"notes,omitempty"`  // what a reader has to know, such as how it was split over processes

	Machines     []Machine     `json:"machines"`
	Setup        Setup         `json:"setup"`
	Phases       []Phase       `json:"phases"`
	Groups       []Group       `json:"groups"`
	Failures     Failures      `json:"failures,omitempty"`
	Samples      []Sample      `json:"samples,omitempty"`
	Costs        *Costs        `json:"costs,omitempty"`
	Expectations []Expectation `json:"expectations,omitempty"`
}

// A Machine is where a part of the load came from.
type Machine struct {
	Name        string `json:"name"`
	CPUs        int    `json:"cpus"`
	CPU         string `json:"cpu"`
	Memory      uint64 `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	Descriptors uint64 `json:"descriptors"` // that one process may have
}

// Setup is what was asked for.
type Setup struct {
	Targets     []string      `json:"targets"`
	Connections int           `json:"connections"`
	Clients     int           `json:"clients"`           // processes
	Servers     int           `json:"servers,omitempty"` // processes that were launched
	Bare        bool          `json:"bare,omitempty"`    // the servers have no reaper
	Timeout     time.Duration `json:"timeout_ns"`        // after which the target closes who is silent; 0 if not known
	Tick        time.Duration `json:"tick_ns,omitempty"`
}

// A Phase is a part of the run with a name, such as "hold". Its times are since the run began.
type Phase struct {
	Name string        `json:"name"`
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
}

// Failures counts connections that could not be opened, by the reason.
type Failures map[string]uint64

// A Group is many connections that behave alike, and what became of them.
type Group struct {
	Name        string `json:"name"`
	Behaviour   string `json:"behaviour"`
	Connections int    `json:"connections"` // asked for

	Opened     uint64 `json:"opened"`
	OpenFailed uint64 `json:"open_failed"`
	Open       uint64 `json:"open"` // now
	Messages   uint64 `json:"messages"`
	Answers    uint64 `json:"answers"`

	// Lost were closed by the target although they were alive: its false reaps.
	Lost uint64 `json:"lost"`
	// Starved were closed because this client was too slow to keep them alive.
	Starved uint64 `json:"starved"`
	// Reaped were closed by the target after they had fallen silent, of them Early before the timeout had passed since the last byte was
	// sent. EarliestBy is by how much at most.
	Reaped     uint64        `json:"reaped"`
	Early      uint64        `json:"early"`
	EarliestBy time.Duration `json:"earliest_by_ns"`
	// Kept are dead, and were still open when the run gave up waiting for the target to close them.
	Kept uint64 `json:"kept"`
	// Ended were closed by this client.
	Ended uint64 `json:"ended"`
	// Reset are those of the closed that the target reset, Told those that it told something first.
	Reset uint64 `json:"reset"`
	Told  uint64 `json:"told"`
	// Garbled were sent something else than they had sent, and stayed open. Unanswered have waited for an answer for too long at the end.
	Garbled    uint64 `json:"garbled"`
	Unanswered uint64 `json:"unanswered"`

	// Connect is how long it took to be connected, from the intended moment on.
	Connect *Histogram `json:"connect,omitempty"`
	// Latency is how long answers took, by the phase in which they came.
	Latency map[string]*Latency `json:"latency,omitempty"`
	// Lateness is how long after its timeout a silent one was closed.
	Lateness *Histogram `json:"lateness,omitempty"`
	// Lifetime is how long those were open that the target closed and that never were to be alive.
	Lifetime *Histogram `json:"lifetime,omitempty"`
}

// Latency is how long answers took: from the moment at which the message was to be sent (Corrected, for what is called coordinated
// omission: a slow answer must not make those after it look fast), and from that at which it was (Raw).
type Latency struct {
	Corrected *Histogram `json:"corrected"`
	Raw       *Histogram `json:"raw"`
}

// A Sample is how things stood at a moment since the run began. Counts are since then.
type Sample struct {
	At       time.Duration `json:"at_ns"`
	Open     uint64        `json:"open"`
	Opened   uint64        `json:"opened"`
	Closed   uint64        `json:"closed"`
	Messages uint64        `json:"messages"`
	Server   Usage         `json:"server"`
	Client   Usage         `json:"client"`
	Kernel   uint64        `json:"kernel_bytes"` // by which memory of the system for sockets has grown, of both ends if both are here
}

// Usage is what processes have used.
type Usage struct {
	RSS       uint64        `json:"rss_bytes"`
	Anonymous uint64        `json:"anonymous_bytes"` // of it, heap and stacks rather than files
	CPU       time.Duration `json:"cpu_ns"`
}

// Costs are what a connection takes, as the difference between before the first was opened and when all were held, and what the
// processor did meanwhile.
type Costs struct {
	Connections uint64        `json:"connections"`
	ServerBytes float64       `json:"server_bytes"`                // of anonymous memory, for each
	BareBytes   float64       `json:"server_bare_bytes,omitempty"` // of it, what a server without a reaper takes; 0 if that is not known
	ClientBytes float64       `json:"client_bytes"`
	KernelBytes float64       `json:"kernel_bytes"` // both ends, if both are here
	BothEnds    bool          `json:"both_ends"`
	ServerCPU   time.Duration `json:"server_cpu_ns"` // while they were held
	ClientCPU   time.Duration `json:"client_cpu_ns"`
}

// An Expectation is a condition that the user has set, and whether it holds.
type Expectation struct {
	Name string `json:"name"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

// Failed reports whether an expectation does not hold.
func (r *Result) Failed() bool {
	for _, e := range r.Expectations {
		if !e.OK {
			return true
		}
	}
	return false
}

// Total returns all groups added up.
func (r *Result) Total() Group {
	total := Group{Name: "all"}
	for i := range r.Groups {
		total.Add(&r.Groups[i])
	}
	return total
}

// Write writes a Result to a file.
func (r *Result) Write(name string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}

// Read reads a Result from a file, which may be a log in which it stands on lines of its own, between others.
func Read(name string) (*Result, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<30))
	if err != nil {
		return nil, err
	}
	if i := bytes.Index(b, []byte("\n{\n")); i >= 0 && !bytes.HasPrefix(b, []byte("{")) {
		b = b[i+1:]
	}
	r := &Result{}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(r); err != nil {
		return nil, fmt.Errorf("%s: not a result of this program: %w", name, err)
	}
	if r.Schema < 1 || r.Schema > Schema {
		return nil, fmt.Errorf("%s: its schema is %d: this program knows 1 to %d", name, r.Schema, Schema)
	}
	return r, nil
}
