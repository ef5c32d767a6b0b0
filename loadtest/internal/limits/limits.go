// Package doctor says whether this machine can hold a number of connections, and what to do about it where it cannot. It reads the limits
// of Linux in /proc and changes nothing: the commands are for the user, most of them for root.
//
// # Limits
//
// What is not in /proc is not checked: the limits of a cgroup, rules of a firewall, and the machine at the other end. The amounts of
// memory are those that were measured for connections that are mostly silent.
package limits

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
)

// A Demand is what this machine is to do. Numbers less than 1 count as 1, except those of Connections and Servers.
type Demand struct {
	Connections int
	Clients     int  // processes that share the connections equally
	Servers     int  // processes here that share their other ends equally; 0: the target is elsewhere
	Sources     int  // addresses from which the clients connect
	Targets     int  // pairs of address and port to which they connect
	Loopback    bool // the connections stay within this machine, as they do if it has Servers
}

// Level is how bad something is.
type Level int

// A higher Level is worse.
const (
	Fine   Level = iota
	Slow         // it will work, worse
	Cannot       // it will not work
)

// String returns "ok", "slow" or "cannot".
func (l Level) String() string {
	switch l {
	case Fine:
		return "ok"
	case Slow:
		return "slow"
	case Cannot:
		return "cannot"
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// A Limit is one limit of the machine. Have is "not known" if it could not be read, which counts as Fine: in a container much is hidden.
// Fix is a command or what else to do, and empty if the Level is Fine.
type Limit struct {
	Name, Have, Need, Fix string
	Level                 Level
}

// Examine checks this machine.
func Check(w Demand) []Limit {
	return system{proc: os.DirFS("/proc"), cpus: runtime.NumCPU()}.check(w)
}

// Worst returns the highest Level of the checks.
func Worst(checks []Limit) Level {
	worst := Fine
	for _, c := range checks {
		worst = max(worst, c.Level)
	}
	return worst
}

// Print writes the checks as a table, below each problem what to do, and at the end the verdict. Errors of w are ignored.
func Print(w io.Writer, checks []Limit) {
	var table bytes.Buffer
	tw := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\tcheck\thave\tneed")
	for _, c := range checks {
		fmt.Fprintf(tw, "%v\t%s\t%s\t%s\n", c.Level, c.Name, c.Have, c.Need)
	}
	tw.Flush()
	i := -1 // the first line is the head
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
		if i >= 0 && checks[i].Fix != "" {
			fmt.Fprintf(w, "        fix: %s\n", checks[i].Fix)
		}
		i++
	}
	fmt.Fprintln(w, verdict(checks))
}

// verdict is the sentence at the end.
func verdict(checks []Limit) string {
	problems := 0
	for _, c := range checks {
		if c.Level == Worst(checks) {
			problems++
		}
	}
	switch Worst(checks) {
	case Fine:
		return "This machine can do it."
	case Slow:
		return fmt.Sprintf("This machine can do it, but not well: %s.", plural(problems, "limit is low", "limits are low"))
	}
	return fmt.Sprintf("This machine cannot do it: %s.", plural(problems, "limit is too low", "limits are too low"))
}

// plural returns a number with what it counts.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// An examiner is where a machine is looked at.
type system struct {
	proc fs.FS // as /proc
	cpus int
}

// examine makes all checks that the Demand needs, those first without which another's fix fails.
func (s system) check(w Demand) []Limit {
	w.Connections, w.Servers = max(w.Connections, 0), max(w.Servers, 0)
	w.Clients, w.Sources, w.Targets = max(w.Clients, 1), max(w.Sources, 1), max(w.Targets, 1)
	checks := []Limit{s.descriptorCeiling(w), s.clientDescriptors(w)}
	if w.Servers > 0 {
		checks = append(checks, s.serverDescriptors(w))
	}
	checks = append(checks, s.allDescriptors(w), s.ports(w))
	if w.bothEnds() && w.Connections > fewConnections {
		checks = append(checks, s.acceptQueue(), s.handshakes())
	}
	return append(checks, s.conntrack(w), s.memory(w), s.buffers(w), s.processes(w), s.processors())
}
