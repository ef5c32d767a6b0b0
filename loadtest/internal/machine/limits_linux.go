package machine

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
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

// Limits are limits of the machine, at least one.
type Limits []Limit

// Check checks whether this machine can hold the connections. Limits outside /proc are not checked:
// cgroups, firewall rules, and the machine at the other end. The memory figures were measured with
// connections that are mostly silent.
func Check(w Demand) Limits {
	return system{proc, runtime.NumCPU()}.check(w)
}

// Worst returns the highest Level of the limits.
func (l Limits) Worst() Level {
	return slices.MaxFunc(l, func(a, b Limit) int { return cmp.Compare(a.Level, b.Level) }).Level
}

// Print writes the limits as a table, with each fix below its limit, and a verdict. It ignores
// errors of w.
func (l Limits) Print(w io.Writer) {
	level, name, have := 0, len("check"), len("have") // widths of the columns
	for _, c := range l {
		level, name, have = max(level, len(c.Level.String())), max(name, len(c.Name)), max(have, len(c.Have))
	}
	fmt.Fprintf(w, "%-*s  %-*s  %-*s  need\n", level, "", name, "check", have, "have")
	for _, c := range l {
		fmt.Fprintf(w, "%-*v  %-*s  %-*s  %s\n", level, c.Level, name, c.Name, have, c.Have, c.Need)
		if c.Fix != "" {
			fmt.Fprintf(w, "        fix: %s\n", c.Fix)
		}
	}
	problems := 0
	for _, c := range l {
		if c.Level == l.Worst() {
			problems++
		}
	}
	switch l.Worst() {
	case Fine:
		fmt.Fprintln(w, "This machine can do it.")
	case Slow:
		fmt.Fprintf(w, "This machine can do it, but not well: %s.\n", format.Plural(problems, "limit is low", "limits are low"))
	default:
		fmt.Fprintf(w, "This machine cannot do it: %s.\n", format.Plural(problems, "limit is too low", "limits are too low"))
	}
}
