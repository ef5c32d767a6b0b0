package load

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// openGroup lets the connections of a group be opened. The rate rises again if all earlier ones had
// their time.
func (l *Loop) openGroup(name string) {
	if now := l.now(); l.openFrom+l.plan.opensAt(l.begun) < now {
		l.openFrom, l.begun = now, 0
	}
	for _, c := range l.conns {
		if c.Name == name {
			l.openLater(c)
		}
	}
}

// openLater lets a connection be opened at the next time. If that has passed, the connection does
// not overtake the actions of others.
func (l *Loop) openLater(c *conn) {
	c.intended = l.openFrom + l.plan.opensAt(l.begun)
	l.begun++
	l.due.set(c, max(c.intended, l.now()))
}

// open opens a connection.
func (l *Loop) open(c *conn) {
	if l.ending || c.Behaviour == Churn && c.silenced { // the churn has ended
		return
	}
	l.delayed(l.now() - c.intended)
	if err := l.connect(c); err != nil {
		l.openFailed(c, err.Error())
	}
}

// connect starts to connect.
func (l *Loop) connect(c *conn) error {
	turn := l.plan.First + l.connects
	l.connects++
	fd, err := unix.Socket(l.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	c.fd = int32(fd)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if !reads(c.Behaviour) {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
	}
	if l.sources != nil {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		if err := unix.Bind(fd, l.sources[turn%len(l.sources)]); err != nil {
			return fmt.Errorf("bind to an address of %s: %w", l.plan.Source, err)
		}
	}
	c.lastSend = l.now()
	err = unix.Connect(fd, l.targets[turn%len(l.targets)])
	if err != nil && err != unix.EINPROGRESS {
		return fmt.Errorf("connect: %w", err)
	}
	c.state = connecting
	c.wantWrite = true // until it is connected
	if err := l.watch(c, unix.EPOLL_CTL_ADD); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	l.due.set(c, c.lastSend+int64(l.plan.Patience))
	return nil
}

// onConnected handles the end of a connection attempt.
func (l *Loop) onConnected(c *conn) {
	errno, err := unix.GetsockoptInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	if err != nil {
		l.openFailed(c, fmt.Sprintf("connect: %v", err))
		return
	}
	now := l.now()
	c.state = open
	l.due.set(c, never) // cancels the limit for connecting
	c.counts.Opened++
	c.counts.Open++
	c.counts.Connect.Record(time.Duration(now - c.intended))
	c.intended, c.base = now, now
	if c.Interval > 0 {
		// Heartbeats are spread over the interval, and none is due before now.
		c.base += int64((randomUnit(c.number, 0) + c.Jitter) * float64(c.Interval))
		c.base += c.grid()
	}
	switch {
	case l.ending:
	case c.Behaviour == Silent, c.Behaviour == PingPong, c.Behaviour == Churn:
		l.sendMessage(c)
	case !reads(c.Behaviour):
		c.asked = endless
	}
	l.flush(c)
	switch {
	case c.state != open:
	case c.Behaviour == Churn:
		l.due.set(c, now+int64(l.plan.Patience))
	case c.Interval > 0:
		l.due.set(c, c.next(c.base-int64(c.Interval)))
	}
}

// openFailed counts and closes a connection that could not be opened.
func (l *Loop) openFailed(c *conn, why string) {
	c.counts.OpenFailed++
	l.counts.Failures[why]++
	l.close(c, false)
}

// resolve parses the addresses of the targets and sources, which are valid.
func (l *Loop) resolve() error {
	for _, t := range l.plan.Targets {
		family, to := sockaddr(netip.MustParseAddrPort(t))
		if l.family != 0 && l.family != family {
			return errors.New("targets mix IPv4 and IPv6")
		}
		l.family = family
		l.targets = append(l.targets, to)
	}
	if l.plan.Source == "" {
		return nil
	}
	prefix := netip.MustParsePrefix(l.plan.Source).Masked()
	addr := prefix.Addr()
	if !prefix.IsSingleIP() {
		addr = addr.Next() // the first one is that of the network
	}
	for ; prefix.Contains(addr) && len(l.sources) < l.plan.Sources; addr = addr.Next() {
		_, from := sockaddr(netip.AddrPortFrom(addr, 0))
		l.sources = append(l.sources, from)
	}
	return nil
}

func sockaddr(a netip.AddrPort) (family int, addr unix.Sockaddr) {
	if ip := a.Addr().Unmap(); ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
