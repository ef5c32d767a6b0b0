// Package limits checks whether this machine can hold a number of connections, and names a fix for
// each limit that is too low. It reads the limits of Linux in /proc and changes nothing: the fixes
// are commands for the operator, most of them for root.
//
// # Scope
//
// Limits outside /proc are not checked: cgroups, firewall rules, and the machine at the other end.
// The memory figures were measured with connections that are mostly silent.
package limits

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/proc"
)

// A Demand is the load that this machine should carry.
type Demand struct {
	Connections int  // at least 1
	Clients     int  // at least 1: processes that share the connections equally
	Servers     int  // processes here that share the other ends equally; 0 if the target is elsewhere
	Sources     int  // at least 1: addresses that the clients connect from
	Targets     int  // at least 1: pairs of address and port that they connect to
	Loopback    bool // connections stay within this machine; implied by Servers
}

// Level is the severity of a limit.
type Level int

// Levels, in order of severity.
const (
	Fine   Level = iota
	Slow         // works, with lower performance
	Cannot       // does not work
)

// String returns "ok", "slow" or "cannot".
func (l Level) String() string {
	return [...]string{"ok", "slow", "cannot"}[l]
}

// A Limit is one limit of the machine. Have is "not known" if it cannot be read, as in many
// containers; its Level is Fine then. Fix is a command or another remedy, and empty if the Level is
// Fine.
type Limit struct {
	Name, Have, Need, Fix string
	Level                 Level
}

// graded returns the limit with its Level, and with the fix unless it is Fine.
func (l Limit) graded(isCannot, isSlow bool, fix string) Limit {
	switch {
	case isCannot:
		l.Level, l.Fix = Cannot, fix
	case isSlow:
		l.Level, l.Fix = Slow, fix
	}
	return l
}

// Check checks the limits of this machine.
func Check(w Demand) []Limit {
	return system{proc.System(), runtime.NumCPU()}.check(w)
}

// Worst returns the highest Level of the limits.
func Worst(limits []Limit) Level {
	return slices.MaxFunc(limits, func(a, b Limit) int { return cmp.Compare(a.Level, b.Level) }).Level
}

// Print writes the limits as a table, with each fix below its limit, and a verdict. It ignores
// errors of w.
func Print(w io.Writer, limits []Limit) {
	var table bytes.Buffer
	tw := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\tcheck\thave\tneed")
	for _, c := range limits {
		fmt.Fprintf(tw, "%v\t%s\t%s\t%s\n", c.Level, c.Name, c.Have, c.Need)
	}
	tw.Flush()
	i := -1 // the first line is the table head
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
		if i >= 0 && limits[i].Fix != "" {
			fmt.Fprintf(w, "        fix: %s\n", limits[i].Fix)
		}
		i++
	}
	fmt.Fprintln(w, verdict(limits))
}

// verdict returns the last line of the table.
func verdict(limits []Limit) string {
	problems := 0
	for _, c := range limits {
		if c.Level == Worst(limits) {
			problems++
		}
	}
	switch Worst(limits) {
	case Fine:
		return "This machine can do it."
	case Slow:
		return fmt.Sprintf("This machine can do it, but not well: %s.", format.Plural(problems, "limit is low", "limits are low"))
	}
	return fmt.Sprintf("This machine cannot do it: %s.", format.Plural(problems, "limit is too low", "limits are too low"))
}

// A system is the machine to check.
type system struct {
	proc proc.Files
	cpus int
}

// check returns the limits that matter for the demand. A limit precedes those with a fix that
// depends on it.
func (s system) check(w Demand) []Limit {
	own := s.ownDescriptors(w)
	limits := []Limit{s.descriptorCeiling(w), own, s.descriptors("descriptors of a client", "--clients", w, w.Clients)}
	if w.Servers > 0 {
		limits = append(limits, s.descriptors("descriptors of a server", "--servers", w, w.Servers))
	}
	limits = append(limits, s.allDescriptors(w), s.ports(w))
	if w.bothEnds() && w.Connections > fewConnections {
		// How many connections may wait for accept, and how many handshakes may be in progress.
		limits = append(limits, s.queue("net.core.somaxconn"), s.queue("net.ipv4.tcp_max_syn_backlog"))
	}
	limits = append(limits, s.conntrack(w), s.memory(w), s.buffers(w))
	if own.Level != Cannot { // otherwise there are so many processes because of their descriptors
		limits = append(limits, s.processes(w))
	}
	return append(limits, s.processors())
}
