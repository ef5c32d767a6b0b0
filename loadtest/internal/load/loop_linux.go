package load

import (
	"fmt"
	"slices"
	"time"

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
	// readChunk is the size of a read in bytes, and slowChunk that of a slow reader.
	readChunk = 1 << 16
	slowChunk = 256
)

// A Loop is the connections of one process. Not safe for concurrent use, except Tell.
type Loop struct {
	plan     Plan
	commands chan Command
	report   func(Report)
	began    time.Time
	poller   *poller

	conns    []*conn // by their number, from plan.First
	due      schedule
	family   int // of the addresses
	targets  []unix.Sockaddr
	sources  []unix.Sockaddr // nil if the kernel chooses
	openFrom int64           // time at which the first of some connections is to be opened
	begun    int             // connections since then that have a time for opening
	connects int             // calls of connect: they take targets and sources in turn
	phases   phases
	ending   bool  // no messages are sent any more
	endsAt   int64 // Run ends then, or when all messages are answered
	words    lastWords
	moments  moments
	buf      []byte
	parts    map[*conn][]byte // of incomplete messages with a stamp, by connection
	counts   result.Counts
	recent   *result.Histogram // latency since the last report
}

// A group is a Spec and its counts.
type group struct {
	Spec
	counts  *result.Group // one of those of the Loop
	message []byte        // the present message if it has a stamp, otherwise repeated ones
}

// NewLoop returns a Loop for a plan, or an error if its targets are of two families or a system
// call fails. Run calls report with each Report.
func NewLoop(plan Plan, report func(Report)) (*Loop, error) {
	l := &Loop{
		plan: plan, commands: make(chan Command, 16), report: report, began: time.Now(), phases: phases{{Name: "open"}},
		buf: make([]byte, readChunk), parts: map[*conn][]byte{}, recent: result.NewCoarse(),
		counts: result.Counts{Groups: make([]result.Group, len(plan.Specs)), Failures: result.Failures{}},
	}
	if err := l.resolve(); err != nil {
		return nil, err
	}
	for i, s := range plan.Specs {
		g := &group{Spec: s, counts: &l.counts.Groups[i], message: padding(s.Size)}
		if s.Behaviour == Trickle {
			g.message[s.Size-1] = ' ' // it never ends a line
		}
		if !g.stamped() {
			g.message = repeated(g.message)
			if Echoes(s.Behaviour) {
				l.note(fmt.Sprintf("messages are shorter than %d bytes: an answer to another connection is not noticed", minStamped))
			}
		}
		*g.counts = result.Group{Name: s.Name, Behaviour: s.Behaviour, Connections: s.Connections}
		for range s.Connections {
			c := &conn{group: g, fd: -1, place: int32(len(l.due)), number: uint32(plan.First + len(l.conns)), due: never}
			l.conns, l.due = append(l.conns, c), append(l.due, c)
		}
		if !s.Deferred {
			l.openGroup(s.Name)
		}
	}
	var err error
	l.poller, err = newPoller()
	return l, err
}

// Tell gives Run a command. Safe for concurrent use until Run returns.
func (l *Loop) Tell(cmd Command) {
	l.commands <- cmd
	l.poller.wake()
}

// note adds a note, once.
func (l *Loop) note(text string) {
	if !slices.Contains(l.counts.Notes, text) {
		l.counts.Notes = append(l.counts.Notes, text)
	}
}

// Run opens the connections and serves them until a Finish command. Run closes all connections; its
// last Report has the histograms.
func (l *Loop) Run() error {
	defer l.poller.close()
	for reported := l.now(); ; {
		select {
		case cmd := <-l.commands:
			l.execute(cmd)
			continue
		default:
		}
		if l.ending && l.isOver() {
			l.finish()
			return nil
		}
		l.runDue()
		l.sayLastWords()
		now := l.now()
		if late := now - reported - int64(reportEvery); late >= 0 {
			l.delayed(late)
			l.report(l.summary(false))
			reported = now
		}
		until := min(reported+int64(reportEvery), now+int64(longestWait))
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
	if len(l.due) > 0 {
		until = min(until, l.due[0].due)
	}
	n, err := l.poller.wait(max(until-now, 0))
	l.moments.woke(l.now(), now, until, n == maxEvents)
	if err == unix.EINTR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("epoll_wait: %w", err)
	}
	for _, ev := range l.poller.events[:n] {
		if ev.Fd >= 0 { // otherwise a wake
			l.onEvent(l.conns[ev.Fd], ev.Events)
		}
	}
	if n > 0 {
		l.delayed(l.now() - l.moments.handling)
	}
	return nil
}

func (l *Loop) onEvent(c *conn, events uint32) {
	if c.state == connecting {
		l.onConnected(c)
		if c.state != open {
			return
		}
	}
	switch {
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0, reads(c.Behaviour) && events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0:
		l.readAvailable(c, readChunk)
	case events&unix.EPOLLRDHUP != 0: // a slow reader may never read the end
		l.onClosed(c, nil)
	}
	if c.state == open && events&unix.EPOLLOUT != 0 {
		l.flush(c)
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
	if cmd.Open != "" {
		l.openGroup(cmd.Open)
	}
	for _, c := range l.conns {
		switch c.Name {
		case cmd.LastMessage:
			if c.state == open {
				l.due.set(c, never) // its next message is the last one
			}
			l.words.queue = append(l.words.queue, c)
		case cmd.Silence:
			l.silence(c)
		case cmd.Vanish:
			l.vanish(c)
		}
	}
}

// isOver reports whether the time is over or all messages are answered.
func (l *Loop) isOver() bool {
	if l.now() >= l.endsAt {
		return true
	}
	for _, c := range l.conns {
		if c.awaits() && !c.unexpected {
			return false
		}
	}
	return true
}

// finish closes all connections and sends the last report.
func (l *Loop) finish() {
	now := l.now()
	for _, c := range l.conns {
		switch c.state {
		case connecting:
			l.openFailed(c, "still connecting when the run ended")
		case open:
			l.checkAnswers(c)
			if c.isDead() && c.Timeout > 0 && now >= c.lastSend+int64(c.Timeout+result.MostLate(c.Timeout)) {
				c.counts.Kept++
			}
			l.missAnswers(c, c.whole(), l.plan.Patience)
			c.counts.Ended++
			l.close(c, true)
		}
	}
	l.report(l.summary(true))
}

func (l *Loop) summary(last bool) Report {
	r := Report{Counts: l.counts, Last: last}
	if !last {
		r.OwnDelay = nil
		r.Groups = slices.Clone(r.Groups)
		for i := range r.Groups {
			of := &r.Groups[i]
			var none result.Histogram
			of.Connect, of.Lateness, of.Lifetime, of.Latency, of.Exchanges = none, none, none, nil, nil
		}
	}
	if l.recent.Count() > 0 {
		r.Recent, l.recent = l.recent, result.NewCoarse()
	}
	return r
}
