package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

const (
	// reportEvery is the interval between reports.
	reportEvery = 200 * time.Millisecond
	// openBatch is the largest number of connections opened before the loop handles events.
	openBatch = 64
	// longestWait bounds a wait for events, and with it a stop of the process that is not noticed.
	longestWait = 50 * time.Millisecond
	// endPoll is the interval at which the end checks for missing answers.
	endPoll = 10 * time.Millisecond
	// blocked is the length of a wait that has blocked.
	blocked = 50 * time.Microsecond
	// lateWake is how late the kernel may end a wait of a process that runs.
	lateWake = time.Millisecond
	// readChunk is the size of a read in bytes, and slowChunk that of a slow reader.
	readChunk = 1 << 16
	slowChunk = 256
)

// A Loop is the connections of one process. Not safe for concurrent use, except Wake.
type Loop struct {
	plan   Plan
	report func(Report)
	began  time.Time
	poller int
	wakeup int // eventfd

	conns      []conn
	due        schedule
	groups     []*group
	targets    []unix.Sockaddr
	sources    []unix.Sockaddr // nil if the kernel chooses
	family     int
	queue      []int32 // indexes of connections to open, in order
	queueFrom  int64   // time at which the queue became non-empty
	begun      int     // connections opened since queueFrom
	total      int     // connections opened
	phases     []phase
	ending     bool  // no messages are sent any more
	endsAt     int64 // Run ends then, or when all messages are answered
	words      lastWords
	clear      int64 // all events until then are known
	certain    int64 // the events that are being handled happened then or later
	handling   int64 // they should have been handled since then
	buf        []byte
	parts      map[int32][]byte // of incomplete messages with a stamp, by connection
	delays     map[string]*result.Histogram
	failures   result.Failures
	notes      []string
	recent     *result.Histogram // latency since the last report
	events     []unix.EpollEvent
	epollEvent unix.EpollEvent
}

// A group is a Spec and its counts.
type group struct {
	Spec
	counts  result.Group
	message []byte // the present message if it has a stamp, otherwise repeated ones
	size    uint32
	first   int // index of its first connection
}

// NewLoop returns a Loop for a plan, or an error if the plan is invalid or a system call fails. Run
// calls report with each Report.
func NewLoop(plan Plan, report func(Report)) (*Loop, error) {
	l := &Loop{plan: plan, report: report, began: time.Now(), buf: make([]byte, readChunk), failures: result.Failures{}}
	l.phases = []phase{{name: "open"}}
	l.parts, l.delays, l.recent = map[int32][]byte{}, map[string]*result.Histogram{}, result.NewCoarse()
	if err := l.resolve(); err != nil {
		return nil, err
	}
	total := 0
	for _, s := range plan.Specs {
		total += s.Connections
	}
	l.conns, l.queue = make([]conn, 0, total), make([]int32, 0, total)
	for _, s := range plan.Specs {
		if s.Size < 2 {
			return nil, fmt.Errorf("group %s: a message of %d bytes: set at least 2", s.Name, s.Size)
		}
		g := &group{Spec: s, first: len(l.conns), size: uint32(s.Size), message: padding(s.Size)}
		if !g.stamped() {
			g.message = repeated(g.message)
			if s.Behaviour.Echoes() {
				l.note(fmt.Sprintf("messages are shorter than %d bytes: an answer to another connection is not noticed", minStamped))
			}
		}
		g.counts = result.Group{Name: s.Name, Behaviour: string(s.Behaviour), Connections: s.Connections}
		for range s.Connections {
			l.conns = append(l.conns, conn{fd: -1, group: uint8(len(l.groups)), number: uint32(plan.First + len(l.conns))})
		}
		l.groups = append(l.groups, g)
		if !s.Deferred {
			l.enqueue(g)
		}
	}
	l.due = make(schedule, 0, len(l.conns)+len(l.conns)/4)
	var err error
	if l.poller, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if l.wakeup, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l.events = make([]unix.EpollEvent, 512)
	return l, unix.EpollCtl(l.poller, unix.EPOLL_CTL_ADD, l.wakeup, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1})
}

// resolve parses the addresses of the targets and sources.
func (l *Loop) resolve() error {
	for _, t := range l.plan.Targets {
		addr, err := netip.ParseAddrPort(t)
		if err != nil {
			return fmt.Errorf("target %q: %w", t, err)
		}
		l.targets = append(l.targets, sockaddr(addr))
		family := unix.AF_INET
		if !addr.Addr().Unmap().Is4() {
			family = unix.AF_INET6
		}
		if l.family != 0 && l.family != family {
			return errors.New("targets mix IPv4 and IPv6")
		}
		l.family = family
	}
	if len(l.targets) == 0 {
		return errors.New("no target")
	}
	if l.plan.Source == "" {
		return nil
	}
	prefix, err := netip.ParsePrefix(l.plan.Source)
	if err != nil {
		return fmt.Errorf("source %q: %w", l.plan.Source, err)
	}
	addr := prefix.Masked().Addr()
	for range max(l.plan.Sources, 1) {
		if addr = addr.Next(); !prefix.Contains(addr) {
			break
		}
		l.sources = append(l.sources, sockaddr(netip.AddrPortFrom(addr, 0)))
	}
	if len(l.sources) == 0 { // the prefix has a single address
		l.sources = append(l.sources, sockaddr(netip.AddrPortFrom(prefix.Addr(), 0)))
	}
	return nil
}

// note adds a note, once.
func (l *Loop) note(text string) {
	if !slices.Contains(l.notes, text) {
		l.notes = append(l.notes, text)
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if ip := a.Addr().Unmap(); ip.Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// Wake makes Run read its commands. Safe for concurrent use until Run returns.
func (l *Loop) Wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(l.wakeup, one[:])
}

// Run opens the connections and serves them until a Finish command or the end of commands. The
// sender calls Wake after each command. Run closes all connections; its last Report has the
// histograms.
func (l *Loop) Run(commands <-chan Command) error {
	defer unix.Close(l.poller)
	defer unix.Close(l.wakeup)
	for reported := l.now(); ; {
		select {
		case cmd, ok := <-commands:
			switch {
			case ok:
				l.execute(cmd)
			case l.ending:
				commands = nil
			default:
				l.finish()
				return nil
			}
			continue
		default:
		}
		if l.ending && l.isOver() {
			l.finish()
			return nil
		}
		l.openDue()
		l.runDue()
		l.sayLastWords()
		now := l.now()
		if late := now - reported - int64(reportEvery); late >= 0 {
			l.delayed(late)
			l.report(l.summary(false))
			reported = now
		}
		until := min(reported+int64(reportEvery), now+int64(longestWait))
		if l.ending {
			until = min(until, now+int64(endPoll))
		}
		if len(l.words.queue) > 0 {
			until = min(until, l.words.heardAt+int64(hearing)+1)
		}
		if err := l.wait(now, until); err != nil {
			return err
		}
	}
}

func (l *Loop) now() int64 { return int64(time.Since(l.began)) }

// wait waits until the next action is due, and handles the events that arrive before.
func (l *Loop) wait(now, until int64) error {
	if at, ok := l.openAt(); ok {
		until = min(until, at)
	}
	if at, ok := l.due.next(); ok {
		until = min(until, at)
	}
	timeout := unix.NsecToTimespec(max(until-now, 0))
	n, err := epollWait(l.poller, l.events, timeout)
	l.woke(now, until, n == len(l.events))
	if err == unix.EINTR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("epoll_wait: %w", err)
	}
	for i := range l.events[:n] {
		ev := &l.events[i]
		if ev.Fd < 0 {
			var count [8]byte
			_, _ = unix.Read(l.wakeup, count[:])
			continue
		}
		l.onEvent(&l.conns[ev.Fd], ev.Fd, ev.Events)
	}
	if n > 0 {
		l.delayed(l.now() - l.handling)
	}
	return nil
}

// woke finds out when the events of a wait happened at the earliest: when it ended, if it has
// blocked and the process was running. full says that there may be more events.
func (l *Loop) woke(began, until int64, full bool) {
	woke := l.now()
	switch due := max(until, began); {
	case woke < began+int64(blocked): // they happened while the last ones were handled
		l.certain, l.handling = l.clear, l.clear
	case woke > due+int64(lateWake): // the process did not run
		l.certain, l.handling = began, due
	default:
		l.certain, l.handling = woke, woke
	}
	if !full {
		l.clear = woke
	}
}

// epollWait waits with nanosecond resolution if the kernel has epoll_pwait2 (Linux 5.11), otherwise
// with millisecond resolution, which would add up to a millisecond to the measured latencies. It
// bypasses the Go scheduler: handing over the processor for each wait costs more CPU than the rest
// of the loop. The wait must be short, because a garbage collection waits for its end.
func epollWait(poller int, events []unix.EpollEvent, timeout unix.Timespec) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(poller), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.ENOSYS, unix.EPERM: // containers may return EPERM
		return unix.EpollWait(poller, events, int((timeout.Nano()+999_999)/1_000_000))
	default:
		return 0, errno
	}
}

func (l *Loop) onEvent(c *conn, index int32, events uint32) {
	g := l.groups[c.group]
	if c.state == connecting {
		l.onConnected(g, c, index)
		if c.state != open {
			return
		}
	}
	switch {
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0, g.Behaviour.reads() && events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0:
		l.readAvailable(g, c, index, readChunk)
	case events&unix.EPOLLRDHUP != 0: // a slow reader may never read the end
		l.onClosed(g, c, index, nil)
	}
	if c.state == open && events&unix.EPOLLOUT != 0 {
		l.flush(g, c, index)
	}
}

// execute executes a command.
func (l *Loop) execute(cmd Command) {
	if cmd.Phase != "" {
		l.begin(cmd.Phase)
	}
	if cmd.Finish {
		l.begin("")
		l.ending, l.endsAt = true, l.now()+int64(cmd.Drain)
	}
	for _, g := range l.groups {
		if g.Name == cmd.Open {
			l.enqueue(g)
		}
		for index := g.first; index < g.first+g.Connections; index++ {
			c := &l.conns[index]
			switch g.Name {
			case cmd.LastMessage:
				l.saveLastWord(g, c, int32(index))
			case cmd.Silence:
				l.silence(g, c)
			case cmd.Vanish:
				l.silence(g, c)
				l.vanish(g, c, int32(index))
			}
		}
	}
}

// isOver reports whether the time is over or all messages are answered that were sent in a phase.
func (l *Loop) isOver() bool {
	if l.now() >= l.endsAt {
		return true
	}
	for i := range l.conns {
		c := &l.conns[i]
		g := l.groups[c.group]
		if c.state == open && g.Behaviour.Echoes() && g.Behaviour.reads() && c.flags&unexpected == 0 &&
			c.answered < c.whole(g.size) && l.phaseAt(g.begins(c, c.answered, c.lastSend)) != "" {
			return false
		}
	}
	return true
}

// finish closes all connections and sends the last report.
func (l *Loop) finish() {
	now := l.now()
	for index := range l.conns {
		c := &l.conns[index]
		g := l.groups[c.group]
		if c.state == free {
			continue
		}
		if c.state == open {
			switch {
			case l.isDead(g, c):
				if g.Timeout > 0 && now >= c.lastSend+int64(g.Timeout) {
					g.counts.Kept++
				}
			default:
				l.checkAnswers(g, c)
			}
			l.missAnswers(g, c, l.plan.Patience)
			g.counts.Ended++
		} else {
			l.countFailure(g, "still connecting when the run ended")
		}
		l.close(c, int32(index), true)
	}
	l.report(l.summary(true))
}

func (l *Loop) summary(last bool) Report {
	r := Report{Failures: l.failures, Notes: l.notes, Last: last}
	for _, g := range l.groups {
		of := g.counts
		if !last {
			of.Connect, of.Latency, of.Lateness, of.Lifetime, of.Exchanges = nil, nil, nil, nil, nil
		}
		r.Groups = append(r.Groups, of)
	}
	if last {
		r.OwnDelay = l.delays
		delete(r.OwnDelay, "")
	}
	if l.recent.Count() > 0 {
		r.Latency, l.recent = l.recent, result.NewCoarse()
	}
	return r
}

// setInterest updates the events that epoll reports for an open connection.
func (l *Loop) setInterest(g *group, c *conn, index int32) {
	events := uint32(unix.EPOLLRDHUP)
	if g.Behaviour.reads() {
		events |= unix.EPOLLIN
	}
	if c.flags&wantWrite != 0 {
		events |= unix.EPOLLOUT
	}
	if err := l.epollCtl(unix.EPOLL_CTL_MOD, int(c.fd), events, index); err != nil {
		panic("BUG: epoll_ctl: " + err.Error())
	}
}

// epollCtl calls epoll_ctl. The event is a field because a local one would be allocated per call.
func (l *Loop) epollCtl(op, fd int, events uint32, index int32) error {
	l.epollEvent = unix.EpollEvent{Events: events, Fd: index}
	return unix.EpollCtl(l.poller, op, fd, &l.epollEvent)
}
