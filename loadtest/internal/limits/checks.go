package limits

import (
	"fmt"
	"strings"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/proc"
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

// Opening more than fewConnections at a high rate overflows a queue shorter than backlog.
const (
	backlog        = 4096
	fewConnections = 1000
)

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
func atLeast(name string, have proc.Number, need uint64, below Level, fix string) Limit {
	low := have.Known && have.N < need
	return Limit{Name: name, Have: have.String(), Need: format.Count(need)}.graded(low && below == Cannot, low, fix)
}

// descriptorCeiling checks fs.nr_open, the upper bound of the limit of a process.
func (s system) descriptorCeiling(w Demand) Limit {
	need := w.perProcess(w.Clients)
	if w.Servers > 0 {
		need = max(need, w.perProcess(w.Servers))
	}
	return atLeast("fs.nr_open", s.proc.Field("sys/fs/nr_open", 0), need, Cannot, fmt.Sprintf("sysctl -w fs.nr_open=%d", need))
}

// ownDescriptors checks the limit of the process that starts the others. A higher limit needs fewer
// processes.
func (s system) ownDescriptors(w Demand) Limit {
	processes := func(n int) int { return (w.Connections+n-1)/n + (w.Connections*8/7+n-1)/n }
	enough := 4 * reserve
	for enough < pipes*processes(enough-2*reserve)+reserve {
		enough *= 2
	}
	return atLeast("descriptors of loadtest", s.proc.FieldAfter("self/limits", "Max open files", 1), uint64(pipes*(w.Clients+w.Servers)+reserve), Cannot,
		fmt.Sprintf("as root ulimit -n %d, or LimitNOFILE=%[1]d in a unit of systemd", enough))
}

// descriptors checks the hard limit of a process. Go programs raise their soft limit to it.
func (s system) descriptors(name, flag string, w Demand, processes int) Limit {
	have, need := s.proc.FieldAfter("self/limits", "Max open files", 1), w.perProcess(processes)
	fix := fmt.Sprintf("as root ulimit -n %d, or LimitNOFILE=%d in a unit of systemd", need, need)
	if have.N > reserve {
		room := have.N - reserve
		fix = fmt.Sprintf("%s %d, or %s", flag, (uint64(w.Connections)+room-1)/room, fix)
	}
	return atLeast(name, have, need, Cannot, fix)
}

// allDescriptors checks the limit of the whole system.
func (s system) allDescriptors(w Demand) Limit {
	used := s.proc.Field("sys/fs/file-nr", 0)
	need := used.N + w.ends() + reserve*uint64(w.Clients+w.Servers)
	return atLeast("fs.file-max", s.proc.Field("sys/fs/file-max", 0), need, Cannot, fmt.Sprintf("sysctl -w fs.file-max=%d", need))
}

// ports checks the number of local ports: each pair of source and target has every port once. The
// last 5 % are Slow: other programs hold some ports, and the kernel searches long for a free one.
func (s system) ports(w Demand) Limit {
	const file = "sys/net/ipv4/ip_local_port_range"
	first, last := s.proc.Field(file, 0), s.proc.Field(file, 1)
	pairs, need := uint64(w.Sources)*uint64(w.Targets), uint64(w.Connections)
	c := Limit{Name: "local ports", Have: "not known", Need: format.Count(need)}
	if !first.Known || !last.Known || last.N < first.N || last.N > 65535 {
		return c
	}
	each := last.N - first.N + 1
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

// queue checks a queue of a listener. When it is full, the kernel drops packets, which clients send
// again after a second.
func (s system) queue(name string) Limit {
	file := "sys/" + strings.ReplaceAll(name, ".", "/")
	return atLeast(name, s.proc.Field(file, 0), backlog, Slow, fmt.Sprintf("sysctl -w %s=%d", name, backlog))
}

// conntrack checks the connection table of the firewall. The file is missing if conntrack is not
// loaded. An empty table is not in use: no rule refers to it.
func (s system) conntrack(w Demand) Limit {
	used := s.proc.Field("sys/net/netfilter/nf_conntrack_count", 0)
	have, need := s.proc.Field("sys/net/netfilter/nf_conntrack_max", 0), used.N+uint64(w.Connections)
	const name = "net.netfilter.nf_conntrack_max"
	if have.Known && used.Known && used.N == 0 {
		return Limit{Name: name, Have: have.String() + ", not in use", Need: format.Count(need)}
	}
	return atLeast(name, have, need, Cannot, fmt.Sprintf("sysctl -w %s=%d", name, need))
}

// memory checks the available memory. It is Slow if less than a quarter would remain.
func (s system) memory(w Demand) Limit {
	have, need := s.proc.FieldAfter("meminfo", "MemAvailable:", 0), w.ends()*(kernelBytes+processBytes)
	whole := need + need/3 // the rest is for caches and the processes themselves
	c := Limit{Name: "memory available", Have: "not known", Need: format.Bytes(float64(whole))}
	if !have.Known {
		return c
	}
	bytes := have.N << 10
	c.Have = format.Bytes(float64(bytes))
	fits := (bytes - bytes/4) / (kernelBytes + processBytes) * uint64(w.Connections) / w.ends()
	fix := fmt.Sprintf("--connections %d, or %s more memory", fits, format.Bytes(float64(whole-min(bytes, whole))))
	return c.graded(bytes < need, bytes < whole, fix)
}

// buffers checks the number of pages above which TCP drops packets.
func (s system) buffers(w Demand) Limit {
	need := s.proc.FieldAfter("net/sockstat", "TCP:", 9).N + w.ends()/burst*burstPages
	have := s.proc.Field("sys/net/ipv4/tcp_mem", 2)
	fix := fmt.Sprintf("sysctl -w net.ipv4.tcp_mem='%d %d %d'", need/2, need*3/4, need)
	return atLeast("net.ipv4.tcp_mem (pages)", have, need, Slow, fix)
}

// processes checks the lower limit on threads, of this user and of the system.
func (s system) processes(w Demand) Limit {
	need := uint64(w.Clients+w.Servers) * threads
	user, system := s.proc.FieldAfter("self/limits", "Max processes", 1), s.proc.Field("sys/kernel/pid_max", 0)
	fix := fmt.Sprintf("as root ulimit -u %d", need)
	if system.Known && system.N < need {
		fix = fmt.Sprintf("sysctl -w kernel.pid_max=%d", 2*need)
	}
	if !user.Known || system.Known && system.N < user.N {
		user = system
	}
	return atLeast("threads", user, need, Cannot, fix)
}

// processors checks that clients, servers and the measurement do not share a single CPU.
func (s system) processors() Limit {
	return atLeast("CPUs", proc.Number{N: uint64(s.cpus), Known: true}, 2, Slow, "a machine with more, or the target on another one")
}
