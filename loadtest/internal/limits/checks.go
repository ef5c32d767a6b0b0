package limits

import "fmt"

// What a process takes.
const (
	reserve = 64 // descriptors besides those of connections: listeners, epoll, pipes, files
	threads = 16 // in Go on few CPUs, with room
)

// What one end of a connection takes, in bytes: one million with both ends on one machine took 10.3 GB of the kernel, 0.7 GB of the servers and
// 0.2 GB of the clients (loadtest/results).
const (
	kernelBytes  = 5200
	processBytes = 500
)

// What messages on their way take: it is assumed that one connection in burst has one at the same moment. 1.5 pages each were measured on
// Linux 6.18; a silent connection has none.
const (
	burst      = 10
	burstPages = 2
)

// A queue shorter than backlog overflows when more connections than fewConnections are opened fast.
const (
	backlog        = 4096
	fewConnections = 1000
)

// bothEnds reports whether the other ends of the connections are on this machine too.
func (w Demand) bothEnds() bool { return w.Servers > 0 || w.Loopback }

// ends returns how many ends of connections this machine has.
func (w Demand) ends() uint64 {
	if w.bothEnds() {
		return 2 * uint64(w.Connections)
	}
	return uint64(w.Connections)
}

// perProcess returns how many descriptors one of n processes needs that share the connections.
func (w Demand) perProcess(n int) uint64 { return uint64((w.Connections+n-1)/n) + reserve }

// atLeast checks that there is as much as needed; less is of the Level below.
func atLeast(name string, have value, need uint64, below Level, fix string) Limit {
	c := Limit{Name: name, Have: have.String(), Need: count(need)}
	if have.known && have.n < need {
		c.Level, c.Fix = below, fix
	}
	return c
}

// descriptorCeiling checks above what no limit of a process can be raised.
func (s system) descriptorCeiling(w Demand) Limit {
	need := w.perProcess(w.Clients)
	if w.Servers > 0 {
		need = max(need, w.perProcess(w.Servers))
	}
	return atLeast("fs.nr_open", s.field("sys/fs/nr_open", 0), need, Cannot, fmt.Sprintf("sysctl -w fs.nr_open=%d", need))
}

func (s system) clientDescriptors(w Demand) Limit {
	return s.descriptors("descriptors of a client", "--clients", w, w.Clients)
}

func (s system) serverDescriptors(w Demand) Limit {
	return s.descriptors("descriptors of a server", "--servers", w, w.Servers)
}

// descriptors checks the hard limit, up to which programs in Go raise their soft limit themselves.
func (s system) descriptors(name, flag string, w Demand, processes int) Limit {
	have, need := s.fieldAfter("self/limits", "Max open files", 1), w.perProcess(processes)
	fix := fmt.Sprintf("as root ulimit -n %d, or LimitNOFILE=%d in a unit of systemd", need, need)
	if have.n > reserve {
		room := have.n - reserve
		fix = fmt.Sprintf("%s %d, or %s", flag, (uint64(w.Connections)+room-1)/room, fix)
	}
	return atLeast(name, have, need, Cannot, fix)
}

// allDescriptors checks how many the whole system may have.
func (s system) allDescriptors(w Demand) Limit {
	used := s.field("sys/fs/file-nr", 0)
	need := used.n + w.ends() + reserve*uint64(w.Clients+w.Servers)
	return atLeast("fs.file-max", s.field("sys/fs/file-max", 0), need, Cannot, fmt.Sprintf("sysctl -w fs.file-max=%d", need))
}

// ports checks that there are enough local ports: a pair of source and target has each port once. The last ones are Slow, since some are
// held by listeners and other programs, and the kernel searches long for a free one.
func (s system) ports(w Demand) Limit {
	const file = "sys/net/ipv4/ip_local_port_range"
	first, last := s.field(file, 0), s.field(file, 1)
	pairs, need := uint64(w.Sources)*uint64(w.Targets), uint64(w.Connections)
	c := Limit{Name: "local ports", Have: "not known", Need: count(need)}
	if !first.known || !last.known || last.n < first.n || last.n > 65535 {
		return c
	}
	each := last.n - first.n + 1
	have := each * pairs
	c.Have = fmt.Sprintf("%s (%s for each source and target)", count(have), count(each))
	switch {
	case have < need:
		c.Level = Cannot
	case usablePorts(each)*pairs < need:
		c.Level = Slow
	default:
		return c
	}
	c.Fix = w.morePorts(need, each)
	return c
}

// spared returns how many of so many ports can be had without trouble.
func usablePorts(ports uint64) uint64 { return ports - ports/20 }

// morePorts returns what gives the clients enough ports, if each source and target has so many now.
func (w Demand) morePorts(need, each uint64) string {
	const first, last = 10240, 65535 // above the ports on which servers usually listen
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

// acceptQueue checks how many connections may wait to be accepted.
func (s system) acceptQueue() Limit {
	return s.queue("net.core.somaxconn", "sys/net/core/somaxconn")
}

// handshakes checks how many connections may wait for the end of their handshake.
func (s system) handshakes() Limit {
	return s.queue("net.ipv4.tcp_max_syn_backlog", "sys/net/ipv4/tcp_max_syn_backlog")
}

// queue checks the length of a queue of a listener. From a full one the kernel drops what the client sends again after a second.
func (s system) queue(name, file string) Limit {
	return atLeast(name, s.field(file, 0), backlog, Slow, fmt.Sprintf("sysctl -w %s=%d", name, backlog))
}

// tracked checks the table of connections that a firewall has; without one the file is not there. A loaded table in which nothing is at
// all is not in use: no rule asks for it.
func (s system) conntrack(w Demand) Limit {
	used := s.field("sys/net/netfilter/nf_conntrack_count", 0)
	have, need := s.field("sys/net/netfilter/nf_conntrack_max", 0), used.n+uint64(w.Connections)
	const name = "net.netfilter.nf_conntrack_max"
	if have.known && used.known && used.n == 0 {
		return Limit{Name: name, Have: have.String() + ", not in use", Need: count(need)}
	}
	return atLeast(name, have, need, Cannot, fmt.Sprintf("sysctl -w %s=%d", name, need))
}

// memory checks what programs and the kernel can still have. It is Slow if less than a quarter would remain, for caches and the processes
// themselves.
func (s system) memory(w Demand) Limit {
	have, need := s.fieldAfter("meminfo", "MemAvailable:", 0), w.ends()*(kernelBytes+processBytes)
	c := Limit{Name: "memory available", Have: "not known", Need: bytesText(need)}
	if !have.known {
		return c
	}
	bytes := have.n << 10
	c.Have = bytesText(bytes)
	switch {
	case bytes < need:
		c.Level = Cannot
	case bytes-bytes/4 < need:
		c.Level = Slow
	default:
		return c
	}
	fits := (bytes - bytes/4) / (kernelBytes + processBytes) * uint64(w.Connections) / w.ends()
	c.Fix = fmt.Sprintf("--connections %d, or %s more memory", fits, bytesText(need+need/3-bytes))
	return c
}

// buffers checks above how many pages TCP drops what it is sent.
func (s system) buffers(w Demand) Limit {
	need := s.fieldAfter("net/sockstat", "TCP:", 9).n + w.ends()/burst*burstPages
	have := s.field("sys/net/ipv4/tcp_mem", 2)
	fix := fmt.Sprintf("sysctl -w net.ipv4.tcp_mem='%d %d %d'", need/2, need*3/4, need)
	return atLeast("net.ipv4.tcp_mem (pages)", have, need, Slow, fix)
}

// processes checks how many threads the processes may have: of this user, and the whole system.
func (s system) processes(w Demand) Limit {
	need := uint64(w.Clients+w.Servers) * threads
	user, system := s.fieldAfter("self/limits", "Max processes", 1), s.field("sys/kernel/pid_max", 0)
	fix := fmt.Sprintf("as root ulimit -u %d", need)
	if system.known && system.n < need {
		fix = fmt.Sprintf("sysctl -w kernel.pid_max=%d", 2*need)
	}
	return atLeast("threads", lower(user, system), need, Cannot, fix)
}

// processors checks that clients do not wait for the servers, or for what measures them.
func (s system) processors() Limit {
	return atLeast("CPUs", value{uint64(s.cpus), true}, 2, Slow, "a machine with more, or the target on another one")
}
