package machine

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// Use of one process.
const (
	reserve = 64 // descriptors for listeners, epoll, pipes and files
	threads = 16 // of a Go process on few CPUs, rounded up
	pipes   = 3  // descriptors of a process in its parent: input, output, and one for its end
)

// Bytes per end of a connection. A million connections with both ends on one machine took 10.3 GB
// of the kernel, 0.7 GB of the servers and 0.2 GB of the clients (loadtest/results).
const (
	kernelBytes  = 5200
	processBytes = 500
)

// Buffers of messages in flight, under the assumption that one connection in burst has one at any
// time. Linux 6.18 used 1.5 pages each. A silent connection has no buffers.
const (
	burst      = 10
	burstPages = 2
)

// Opening more than fewConnections at a high rate overflows a queue shorter than backlog. When it
// is full, the kernel drops packets, which clients send again after a second.
const (
	backlog        = 4096
	fewConnections = 1000
)

// moreDescriptors is the fix for too few descriptors of a process.
const moreDescriptors = "as root ulimit -n %d, or LimitNOFILE=%[1]d in a unit of systemd"

// Level is the severity of a limit.
type Level int

// Levels, in order of severity.
const (
	Fine   Level = iota
	Slow         // works, with lower performance
	Cannot       // does not work
)

// String returns "ok", "slow" or "cannot".
func (l Level) String() string { return [...]string{"ok", "slow", "cannot"}[l] }

// A Limit is one limit of the machine. Have is "not known" if it cannot be read, as in many
// containers; its Level is Fine then. Fix is a command or another remedy, and empty if the Level is
// Fine.
type Limit struct {
	Name, Have, Need, Fix string
	Level                 Level
}

// Limits are limits of the machine, at least one.
type Limits []Limit

// Check checks whether this machine can hold the connections of a setup, which its processes share
// equally. Without servers the other ends are elsewhere. Limits outside /proc are not checked:
// cgroups, firewall rules, and the machine at the other end. The memory figures were measured with
// connections that are mostly silent.
func Check(w result.Setup) Limits { return proc.check(w, runtime.NumCPU()) }

// Worst returns the highest Level of the limits.
func (l Limits) Worst() Level {
	return slices.MaxFunc(l, func(a, b Limit) int { return cmp.Compare(a.Level, b.Level) }).Level
}

// Print writes the limits as a table, with each fix below its limit, and a verdict. It ignores
// errors of w.
func (l Limits) Print(w io.Writer) {
	worst, problems := l.Worst(), 0
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
		if c.Level == worst {
			problems++
		}
	}
	switch worst {
	case Fine:
		fmt.Fprintln(w, "This machine can do it.")
	case Slow:
		fmt.Fprintf(w, "This machine can do it, but not well: %s.\n", format.Plural(problems, "limit is low", "limits are low"))
	default:
		fmt.Fprintf(w, "This machine cannot do it: %s.\n", format.Plural(problems, "limit is too low", "limits are too low"))
	}
}

// check returns the limits that matter for the demand. A limit precedes those with a fix that
// depends on it.
func (f files) check(w result.Setup, cpus int) Limits {
	own := f.ownDescriptors(w)
	fewest := min(w.Clients, cmp.Or(w.Servers, w.Clients)) // they need the most descriptors each
	limits := Limits{f.sysctl("fs.nr_open", perProcess(w, fewest), Cannot), own, f.descriptors("client", w, w.Clients)}
	if w.Servers > 0 {
		limits = append(limits, f.descriptors("server", w, w.Servers))
	}
	open := f.number("sys/fs/file-nr", "", 0).n + ends(w) + reserve*uint64(w.Clients+w.Servers)
	limits = append(limits, f.sysctl("fs.file-max", open, Cannot), f.ports(w))
	if w.Servers > 0 && w.Connections > fewConnections {
		// How many connections may wait for accept, and how many handshakes may be in progress.
		limits = append(limits, f.sysctl("net.core.somaxconn", backlog, Slow), f.sysctl("net.ipv4.tcp_max_syn_backlog", backlog, Slow))
	}
	limits = append(limits, f.conntrack(w), f.memory(w), f.buffers(w))
	if own.Level != Cannot { // otherwise there are so many processes because of their descriptors
		limits = append(limits, f.processes(w))
	}
	// Clients, servers and the measurement must not share a single CPU.
	return append(limits, atLeast("CPUs", number{uint64(cpus), true}, 2, Slow, "a machine with more, or the target on another one"))
}

// ends returns the number of connection ends on this machine.
func ends(w result.Setup) uint64 {
	if w.Servers > 0 {
		return 2 * uint64(w.Connections)
	}
	return uint64(w.Connections)
}

// perProcess returns the descriptors that each of n processes needs.
func perProcess(w result.Setup, n int) uint64 { return uint64((w.Connections+n-1)/n) + reserve }

// atLeast returns a limit that has the given Level if it is lower than needed.
func atLeast(name string, have number, need uint64, below Level, fix string) Limit {
	low := have.known && have.n < need
	return Limit{Name: name, Have: have.String(), Need: format.Count(need)}.graded(low && below == Cannot, low, fix)
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

// sysctl checks a sysctl that has the given Level if it is lower than needed.
func (f files) sysctl(name string, need uint64, below Level) Limit {
	have := f.number("sys/"+strings.ReplaceAll(name, ".", "/"), "", 0)
	return atLeast(name, have, need, below, fmt.Sprintf("sysctl -w %s=%d", name, need))
}

// ownDescriptors checks the limit of the process that starts the others. A higher limit needs fewer
// processes.
func (f files) ownDescriptors(w result.Setup) Limit {
	processes := func(n int) int { return (w.Connections+n-1)/n + (w.Connections*8/7+n-1)/n }
	enough := 4 * reserve
	for enough < pipes*processes(enough-2*reserve)+reserve {
		enough *= 2
	}
	have, need := f.number("self/limits", "Max open files", 1), uint64(pipes*(w.Clients+w.Servers)+reserve)
	return atLeast("descriptors of loadtest", have, need, Cannot, fmt.Sprintf(moreDescriptors, enough))
}

// descriptors checks the hard limit of a client or a server. Go programs raise their soft limit to
// it.
func (f files) descriptors(kind string, w result.Setup, processes int) Limit {
	have, need := f.number("self/limits", "Max open files", 1), perProcess(w, processes)
	fix := fmt.Sprintf(moreDescriptors, need)
	if have.n > reserve {
		room := have.n - reserve
		fix = fmt.Sprintf("--%ss %d, or %s", kind, (uint64(w.Connections)+room-1)/room, fix)
	}
	return atLeast("descriptors of a "+kind, have, need, Cannot, fix)
}

// ports checks the number of local ports: each pair of source and target has every port once. The
// last 5 % are Slow: other programs hold some ports, and the kernel searches long for a free one.
func (f files) ports(w result.Setup) Limit {
	const file = "sys/net/ipv4/ip_local_port_range"
	first, last := f.number(file, "", 0), f.number(file, "", 1)
	targets, need := uint64(max(len(w.Targets), 1)), uint64(w.Connections)
	pairs := uint64(w.Sources) * targets
	c := Limit{Name: "local ports", Have: "not known", Need: format.Count(need)}
	if !first.known || !last.known || last.n < first.n || last.n > 65535 {
		return c
	}
	each := last.n - first.n + 1
	have := each * pairs
	c.Have = fmt.Sprintf("%s (%s for each source and target)", format.Count(have), format.Count(each))
	return c.graded(have < need, usablePorts(each)*pairs < need, morePorts(w, targets, need, each))
}

// usablePorts returns how many ports can be used at full speed.
func usablePorts(ports uint64) uint64 { return ports - ports/20 }

// morePorts returns the fix for too few ports, given the ports per source and target.
func morePorts(w result.Setup, targets, need, each uint64) string {
	const first, last = 10240, 65535 // above the usual ports of servers
	perSource := usablePorts(each) * targets
	fix := fmt.Sprintf("--sources %d", (need+perSource-1)/max(perSource, 1))
	if w.Servers == 0 {
		fix += " (each added by ip address add ADDRESS dev DEVICE)"
	}
	if usablePorts(last-first+1)*uint64(w.Sources)*targets >= need {
		fix += fmt.Sprintf(", or sysctl -w net.ipv4.ip_local_port_range='%d %d'", first, last)
	}
	return fix
}

// conntrack checks the connection table of the firewall. The file is missing if conntrack is not
// loaded. An empty table is not in use: no rule refers to it.
func (f files) conntrack(w result.Setup) Limit {
	used := f.number("sys/net/netfilter/nf_conntrack_count", "", 0)
	c := f.sysctl("net.netfilter.nf_conntrack_max", used.n+uint64(w.Connections), Cannot)
	if used.known && used.n == 0 {
		return Limit{Name: c.Name, Have: c.Have + ", not in use", Need: c.Need}
	}
	return c
}

// memory checks the available memory. It is Slow if less than a quarter would remain.
func (f files) memory(w result.Setup) Limit {
	have, need := f.number("meminfo", "MemAvailable:", 0), ends(w)*(kernelBytes+processBytes)
	whole := need + need/3 // the rest is for caches and the processes themselves
	c := Limit{Name: "memory available", Have: "not known", Need: format.Bytes(float64(whole))}
	if !have.known {
		return c
	}
	bytes := have.n << 10
	c.Have = format.Bytes(float64(bytes))
	fits := (bytes - bytes/4) / (kernelBytes + processBytes) * uint64(w.Connections) / ends(w)
	fix := fmt.Sprintf("--connections %d, or %s more memory", fits, format.Bytes(float64(whole-min(bytes, whole))))
	return c.graded(bytes < need, bytes < whole, fix)
}

// buffers checks the number of pages above which TCP drops packets.
func (f files) buffers(w result.Setup) Limit {
	need := f.number("net/sockstat", "TCP:", 9).n + ends(w)/burst*burstPages
	fix := fmt.Sprintf("sysctl -w net.ipv4.tcp_mem='%d %d %d'", need/2, need*3/4, need)
	return atLeast("net.ipv4.tcp_mem (pages)", f.number("sys/net/ipv4/tcp_mem", "", 2), need, Slow, fix)
}

// processes checks the lower limit on threads, of this user and of the system.
func (f files) processes(w result.Setup) Limit {
	need := uint64(w.Clients+w.Servers) * threads
	user, system := f.number("self/limits", "Max processes", 1), f.number("sys/kernel/pid_max", "", 0)
	fix := fmt.Sprintf("as root ulimit -u %d", need)
	if system.known && system.n < need {
		fix = fmt.Sprintf("sysctl -w kernel.pid_max=%d", 2*need)
	}
	if !user.known || system.known && system.n < user.n {
		user = system
	}
	return atLeast("threads", user, need, Cannot, fix)
}
