// Package result holds the outcome of a load test. It is written as JSON, read, merged over
// machines, and shown.
package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"time"
)

// Schema is the version of the JSON format, described in SCHEMA.md. Read refuses other versions: a
// result of version 1 has no verdict and not enough of its setup to be merged.
const Schema = 2

// A Result is the outcome of one run, or of several merged runs.
type Result struct {
	Schema      int           `json:"schema"`
	Verb        string        `json:"verb"`
	Command     string        `json:"command"` // as typed
	Began       time.Time     `json:"began"`
	Took        time.Duration `json:"took_ns"`
	Interrupted bool          `json:"interrupted,omitempty"`
	Verdict     Verdict       `json:"verdict"`
	Errors      []string      `json:"errors,omitempty"` // faults of the target as a whole
	Faults      []string      `json:"faults,omitempty"` // of this program or of this machine

	Machines []Machine `json:"machines"`
	Setup    Setup     `json:"setup"`
	Phases   []Phase   `json:"phases"`
	Counts
	Samples      []Sample      `json:"samples,omitempty"`
	Costs        *Costs        `json:"costs,omitempty"`
	Expectations []Expectation `json:"expectations,omitempty"`
}

// Counts are what a client process counted, or several of them on one machine or more.
type Counts struct {
	Groups   []Group  `json:"groups"`
	Failures Failures `json:"failures,omitempty"`
	// OwnDelay is by phase how late this program itself was: the time from when an action or a
	// wakeup of a client process was due until it ran.
	OwnDelay map[string]*Histogram `json:"own_delay,omitempty"`
	Notes    []string              `json:"notes,omitempty"` // remarks, such as the number of processes
}

// A Machine is a source of load.
type Machine struct {
	Name        string `json:"name"`
	CPUs        int    `json:"cpus"`
	CPU         string `json:"cpu"`
	Memory      uint64 `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	Descriptors uint64 `json:"descriptors"` // limit of a process
}

// Setup is the configuration of a run.
type Setup struct {
	Targets     []string      `json:"targets"`
	Connections int           `json:"connections"`
	Clients     int           `json:"clients"`           // processes
	Servers     int           `json:"servers,omitempty"` // launched processes
	Bare        bool          `json:"bare,omitempty"`    // the servers have no reaper
	Timeout     time.Duration `json:"timeout_ns"`        // idle timeout of the target; 0 if unknown
	Tick        time.Duration `json:"tick_ns,omitempty"`

	Rate     float64       `json:"rate"` // new connections per second
	Ramp     time.Duration `json:"ramp_ns,omitempty"`
	Patience time.Duration `json:"patience_ns"` // longest wait for a connection or an answer
	Source   string        `json:"source,omitempty"`
	Sources  int           `json:"sources"`
	Groups   []GroupSetup  `json:"groups"`
	// Flags are the values of all flags of the verb, defaults included.
	Flags map[string]string `json:"flags,omitempty"`
}

// A GroupSetup is the configuration of a Group. The jitter of a connection depends on its number
// alone, so equal setups send at equal times.
type GroupSetup struct {
	Name        string        `json:"name"`
	Behaviour   string        `json:"behaviour"`
	Connections int           `json:"connections"`
	Interval    time.Duration `json:"interval_ns"` // between messages
	Jitter      float64       `json:"jitter"`      // part of Interval
	Size        int           `json:"size"`        // bytes of a message
	Timeout     time.Duration `json:"timeout_ns"`  // after which the target must close it; 0: unknown
}

// A Phase is a named part of the run, such as "hold". Its times are relative to the start of the
// run.
type Phase struct {
	Name string        `json:"name"`
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
}

// Failures counts connections that could not be opened, by reason.
type Failures map[string]uint64

// A Group has the counts of connections with the same behaviour. SCHEMA.md describes each of them.
type Group struct {
	Name        string `json:"name"`
	Behaviour   string `json:"behaviour"`
	Connections int    `json:"connections"`       // requested
	Hostile     bool   `json:"hostile,omitempty"` // the target may refuse, ignore and close them

	Opened     uint64 `json:"opened"`
	OpenFailed uint64 `json:"open_failed"`
	Open       uint64 `json:"open"` // now
	Messages   uint64 `json:"messages"`
	Answers    uint64 `json:"answers"`

	Lost    uint64 `json:"lost"`           // false reaps: living connections that the target closed
	Said    string `json:"said,omitempty"` // what the target told one of them right before
	Starved uint64 `json:"starved"`        // closed because this client did not send in time

	Reaped     uint64        `json:"reaped"`         // dead connections that the target closed
	Early      uint64        `json:"early"`          // reaped before the timeout after their last byte
	EarliestBy time.Duration `json:"earliest_by_ns"` // the largest difference of an early one
	Kept       uint64        `json:"kept"`           // dead connections open when the run ended

	Ended      uint64 `json:"ended"`              // closed by this client
	Vanished   uint64 `json:"vanished,omitempty"` // left by this client without a FIN
	Reset      uint64 `json:"reset"`              // closed by the target with a reset
	Told       uint64 `json:"told"`               // received data, such as a goodbye, before the close
	Garbled    uint64 `json:"garbled"`            // received something other than their echo
	Unanswered uint64 `json:"unanswered"`         // waited too long for an answer at the end
	Doubled    uint64 `json:"doubled"`            // answers that arrived more than once
	Skipped    uint64 `json:"skipped"`            // never answered, although a later message was
	Swapped    uint64 `json:"swapped"`            // answers to a message of another connection

	Exchanges map[string]*Exchange `json:"exchanges,omitempty"` // by the phase of sending
	Connect   Histogram            `json:"connect,omitzero"`    // from the intended start
	Latency   map[string]*Latency  `json:"latency,omitempty"`   // by the phase of the intended time
	Lateness  Histogram            `json:"lateness,omitzero"`   // from the timeout to the close
	Lifetime  Histogram            `json:"lifetime,omitzero"`   // of attackers, which never live
}

// An Exchange counts the messages that were sent in a phase.
type Exchange struct {
	Sent        uint64 `json:"sent"`
	Answered    uint64 `json:"answered"`    // at any time until the end of the run
	Outstanding uint64 `json:"outstanding"` // not answered when the phase ended
	Arrived     uint64 `json:"arrived"`     // answers in this phase, to messages of any phase
	Unanswered  uint64 `json:"unanswered"`  // waited too long, or were lost with their connection
}

// Latency is the time to an answer. Corrected counts from the intended time of the message, Raw
// from the time it was sent. Corrected avoids coordinated omission: a slow answer delays later
// messages, which Raw does not show. Unanswered is how long messages without an answer had waited,
// from their intended time, when they were given up. All are the figures of all messages.
type Latency struct {
	Corrected  Histogram `json:"corrected"`
	Raw        Histogram `json:"raw"`
	Unanswered Histogram `json:"unanswered,omitzero"`
	All        Quantiles `json:"all"`
}

// A Sample is the state at a time relative to the start of the run. Opened, Closed and Messages are
// totals.
type Sample struct {
	At       time.Duration `json:"at_ns"`
	Open     uint64        `json:"open"`
	Opened   uint64        `json:"opened"`
	Closed   uint64        `json:"closed"`
	Messages uint64        `json:"messages"`
	Latency  Quantiles     `json:"latency,omitzero"` // corrected, of the answers since the last sample
	Server   Usage         `json:"server"`
	Client   Usage         `json:"client"`
	Kernel   uint64        `json:"kernel_bytes"` // growth of kernel memory for sockets
}

// Usage is the use of memory and CPU by processes.
type Usage struct {
	RSS       uint64        `json:"rss_bytes"`
	Anonymous uint64        `json:"anonymous_bytes"` // the part that is heap and stacks, not files
	CPU       time.Duration `json:"cpu_ns"`
}

// Costs are the bytes per connection, measured as the growth from before the first connection to
// when all were open, and the CPU time while they were held.
type Costs struct {
	Connections uint64        `json:"connections"`
	ServerBytes float64       `json:"server_bytes"`                // anonymous memory per connection
	BareBytes   float64       `json:"server_bare_bytes,omitempty"` // without a reaper; 0: unknown
	ClientBytes float64       `json:"client_bytes"`
	KernelBytes float64       `json:"kernel_bytes"` // of both ends, if both are here
	BothEnds    bool          `json:"both_ends"`
	ServerCPU   time.Duration `json:"server_cpu_ns"` // while the connections were held
	ClientCPU   time.Duration `json:"client_cpu_ns"`
}

// ReaperBytes returns what the reaper adds to the memory of a connection.
func (c *Costs) ReaperBytes() float64 { return c.ServerBytes - c.BareBytes }

// Total returns the sum of all groups.
func (c *Counts) Total() *Group {
	total := &Group{Name: "all"}
	for i := range c.Groups {
		total.Add(&c.Groups[i])
	}
	return total
}

// Write writes a Result as JSON.
func (r *Result) Write(w io.Writer) error {
	to := json.NewEncoder(w)
	to.SetIndent("", " ")
	return to.Encode(r)
}

// Read reads a Result from a file. The file may be a log with the Result on lines of its own.
func Read(name string) (*Result, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if i := bytes.Index(b, []byte("\n{\n")); i >= 0 && !bytes.HasPrefix(b, []byte("{")) {
		b = b[i+1:]
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, fmt.Errorf("%s: the file is empty", name)
	}
	r := &Result{}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(r); err != nil {
		return nil, fmt.Errorf("%s: not a result of this program: %w", name, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s: its schema is %d: this program reads %d", name, r.Schema, Schema)
	}
	for i := range r.Groups { // the file may have another origin
		maps.DeleteFunc(r.Groups[i].Latency, func(_ string, l *Latency) bool { return l == nil })
		maps.DeleteFunc(r.Groups[i].Exchanges, func(_ string, e *Exchange) bool { return e == nil })
	}
	return r, nil
}
