package machine

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
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

// A system is the machine to check.
type system struct {
	files
	cpus int
}

// check returns the limits that matter for the demand. A limit precedes those with a fix that
// depends on it.
func (s system) check(w Demand) Limits {
	own := s.ownDescriptors(w)
	fewest := min(w.Clients, cmp.Or(w.Servers, w.Clients)) // they need the most descriptors each
	limits := Limits{s.sysctl("fs.nr_open", w.perProcess(fewest), Cannot), own, s.descriptors("client", w, w.Clients)}
	if w.Servers > 0 {
		limits = append(limits, s.descriptors("server", w, w.Servers))
	}
	open := s.number("sys/fs/file-nr", "", 0).n + w.ends() + reserve*uint64(w.Clients+w.Servers)
	limits = append(limits, s.sysctl("fs.file-max", open, Cannot), s.ports(w))
	if w.bothEnds() && w.Connections > fewConnections {
		// How many connections may wait for accept, and how many handshakes may be in progress.
		limits = append(limits, s.sysctl("net.core.somaxconn", backlog, Slow), s.sysctl("net.ipv4.tcp_max_syn_backlog", backlog, Slow))
	}
	limits = append(limits, s.conntrack(w), s.memory(w), s.buffers(w))
	if own.Level != Cannot { // otherwise there are so many processes because of their descriptors
		limits = append(limits, s.processes(w))
	}
	// Clients, servers and the measurement must not share a single CPU.
	return append(limits, atLeast("CPUs", number{uint64(s.cpus), true}, 2, Slow, "a machine with more, or the target on another one"))
}

// bothEnds reports whether the other ends of the connections are on this machine too.
func (w Demand) bothEnds() bool { return w.Servers > 0 || w.Loopback }

// ends returns the number of connection ends on this machine.
func (w Demand) ends() uint64 {
	if w.bothEnds() {
		return 2 * uint64(w.Connections)
	}
	return uint64(w.Connections)
}

// perProcess returns the descriptors that each of n processes needs.
func (w Demand) perProcess(n int) uint64 { return uint64((w.Connections+n-1)/n) + reserve }

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
func (s system) sysctl(name string, need uint64, below Level) Limit {
	have := s.number("sys/"+strings.ReplaceAll(name, ".", "/"), "", 0)
	return atLeast(name, have, need, below, fmt.Sprintf("sysctl -w %s=%d", name, need))
}

// ownDescriptors checks the limit of the process that starts the others. A higher limit needs fewer
// processes.
func (s system) ownDescriptors(w Demand) Limit {
	processes := func(n int) int { return (w.Connections+n-1)/n + (w.Connections*8/7+n-1)/n }
	enough := 4 * reserve
	for enough < pipes*processes(enough-2*reserve)+reserve {
		enough *= 2
	}
	have, need := s.number("self/limits", "Max open files", 1), uint64(pipes*(w.Clients+w.Servers)+reserve)
	return atLeast("descriptors of loadtest", have, need, Cannot, fmt.Sprintf(moreDescriptors, enough))
}

// descriptors checks the hard limit of a client or a server. Go programs raise their soft limit to
// it.
func (s system) descriptors(kind string, w Demand, processes int) Limit {
	have, need := s.number("self/limits", "Max open files", 1), w.perProcess(processes)
	fix := fmt.Sprintf(moreDescriptors, need)
	if have.n > reserve {
		room := have.n - reserve
		fix = fmt.Sprintf("--%ss %d, or %s", kind, (uint64(w.Connections)+room-1)/room, fix)
	}
	return atLeast("descriptors of a "+kind, have, need, Cannot, fix)
}

// ports checks the number of local ports: each pair of source and target has every port once. The
// last 5 % are Slow: other programs hold some ports, and the kernel searches long for a free one.
func (s system) ports(w Demand) Limit {
	const file = "sys/net/ipv4/ip_local_port_range"
	first, last := s.number(file, "", 0), s.number(file, "", 1)
	pairs, need := uint64(w.Sources)*uint64(w.Targets), uint64(w.Connections)
	c := Limit{Name: "local ports", Have: "not known", Need: format.Count(need)}
	if !first.known || !last.known || last.n < first.n || last.n > 65535 {
		return c
	}
	each := last.n - first.n + 1
	have := each * pairs
	c.Have = fmt.Sprintf("%s (%s for each source and target)", format.Count(have), format.Count(each))
	return c.graded(have < need, usablePorts(each)*pairs < need, w.morePorts(need, each))
}

// usablePorts returns how many ports can be used at full speed.
func usablePorts(ports uint64) uint64 { return ports - ports/20 }

// morePorts returns the fix for too few ports, given the ports per source and target.
func (w Demand) morePorts(need, each uint64) string {
	const first, last = 10240, 65535 // above the usual ports of servers
	perSource := usablePorts(each) * uint64(w.Targets)
	fix := fmt.Sprintf("--sources %d", (need+perSource-1)/max(perSource, 1))
	if !w.Loopback {
		fix += " (each added by ip address add ADDRESS dev DEVICE)"
	}
	if usablePorts(last-first+1)*uint64(w.Sources)*uint64(w.Targets) >= need {
		fix += fmt.Sprintf(", or sysctl -w net.ipv4.ip_local_port_range='%d %d'", first, last)
	}
	return fix
}

// conntrack checks the connection table of the firewall. The file is missing if conntrack is not
// loaded. An empty table is not in use: no rule refers to it.
func (s system) conntrack(w Demand) Limit {
	used := s.number("sys/net/netfilter/nf_conntrack_count", "", 0)
	c := s.sysctl("net.netfilter.nf_conntrack_max", used.n+uint64(w.Connections), Cannot)
	if used.known && used.n == 0 {
		return Limit{Name: c.Name, Have: c.Have + ", not in use", Need: c.Need}
	}
	return c
}

// memory checks the available memory. It is Slow if less than a quarter would remain.
func (s system) memory(w Demand) Limit {
	have, need := s.number("meminfo", "MemAvailable:", 0), w.ends()*(kernelBytes+processBytes)
	whole := need + need/3 // the rest is for caches and the processes themselves
	c := Limit{Name: "memory available", Have: "not known", Need: format.Bytes(float64(whole))}
	if !have.known {
		return c
	}
	bytes := have.n << 10
	c.Have = format.Bytes(float64(bytes))
	fits := (bytes - bytes/4) / (kernelBytes + processBytes) * uint64(w.Connections) / w.ends()
	fix := fmt.Sprintf("--connections %d, or %s more memory", fits, format.Bytes(float64(whole-min(bytes, whole))))
	return c.graded(bytes < need, bytes < whole, fix)
}

// buffers checks the number of pages above which TCP drops packets.
func (s system) buffers(w Demand) Limit {
	need := s.number("net/sockstat", "TCP:", 9).n + w.ends()/burst*burstPages
	fix := fmt.Sprintf("sysctl -w net.ipv4.tcp_mem='%d %d %d'", need/2, need*3/4, need)
	return atLeast("net.ipv4.tcp_mem (pages)", s.number("sys/net/ipv4/tcp_mem", "", 2), need, Slow, fix)
}

// processes checks the lower limit on threads, of this user and of the system.
func (s system) processes(w Demand) Limit {
	need := uint64(w.Clients+w.Servers) * threads
	user, system := s.number("self/limits", "Max processes", 1), s.number("sys/kernel/pid_max", "", 0)
	fix := fmt.Sprintf("as root ulimit -u %d", need)
	if system.known && system.n < need {
		fix = fmt.Sprintf("sysctl -w kernel.pid_max=%d", 2*need)
	}
	if !user.known || system.known && system.n < user.n {
		user = system
	}
	return atLeast("threads", user, need, Cannot, fix)
}
