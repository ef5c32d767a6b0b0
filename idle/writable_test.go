package idle

import (
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A markSite is a handSite with marks at 500 and 1000 bytes, and one connection.
type markSite struct {
	*handSite
	t        *testing.T
	c        *scriptedConn
	conn     Conn
	greeting []byte          // of OnOpen
	told     []bool          // to OnWritable
	on       func(told bool) // what OnWritable does then
	action   gnet.Action     // of OnTraffic
}

// A greeter is a reader that greets.
type greeter struct {
	reader
	site *markSite
}

func (g *greeter) OnOpen(gnet.Conn) ([]byte, gnet.Action) { return g.site.greeting, gnet.None }

func (g *greeter) OnTraffic(c gnet.Conn) gnet.Action {
	_ = g.reader.OnTraffic(c)
	return g.site.action
}

func newMarkSite(t *testing.T, cfg Config) *markSite {
	m := &markSite{t: t, on: func(bool) {}}
	cfg.MaxAge, cfg.OutageGrace = 1000*time.Hour, -1
	cfg.OutputMarks = OutputMarks{High: 1000, OnWritable: func(c gnet.Conn, writable bool) {
		require.Same(t, m.c, c)
		m.told = append(m.told, writable)
		m.on(writable)
	}}
	m.handSite = newHandSite(t, &greeter{site: m}, cfg)
	m.answer = verdict.Evidence{Queued: 1}
	m.openNext()
	return m
}

func (m *markSite) openNext() {
	m.c = m.open(1)[0]
	m.conn = handle(m.Reaper, m.c)
}

// has makes n bytes wait, and tells the Reaper by a message.
func (m *markSite) has(n int) { m.c.outbound = n; m.receive(m.c) }

// waits makes n bytes wait without an event, and lets some ticks pass.
func (m *markSite) waits(n, ticks int) {
	m.c.outbound = n
	m.pass(m.t, time.Duration(ticks)*m.watch.Clock.Tick())
}

func TestOutputMarks(t *testing.T) {
	limited := Config{OutputLimit: OutputLimit{Hard: 1500, Total: 4000}, Reset: []Reason{}}
	observed := limited
	observed.ObserveOnly = true
	for name, tc := range map[string]struct {
		cfg  Config
		do   func(m *markSite)
		want []bool // told to OnWritable
		now  int    // Stats.Unwritable
	}{
		"at the high mark":        {do: func(m *markSite) { m.has(1000); m.waits(1000, 20) }},
		"above it":                {do: func(m *markSite) { m.has(1001) }, want: []bool{false}, now: 1},
		"twice":                   {do: func(m *markSite) { m.has(1001); m.has(2000); m.waits(1001, 20) }, want: []bool{false}, now: 1},
		"above the low mark":      {do: func(m *markSite) { m.has(1001); m.waits(501, 20); m.has(501) }, want: []bool{false}, now: 1},
		"at the low mark":         {do: func(m *markSite) { m.has(1001); m.waits(500, 1); m.waits(0, 20) }, want: []bool{false, true}},
		"in a second, by itself":  {do: func(m *markSite) { m.pass(m.t, time.Minute); m.waits(1001, 12) }, want: []bool{false}, now: 1},
		"in a tick, after output": {do: func(m *markSite) { m.waits(1, 12); m.waits(1001, 1) }, want: []bool{false}, now: 1},
		"in the next tick again":  {do: func(m *markSite) { m.has(1001); m.waits(0, 1); m.has(1001) }, want: []bool{false, true, false}, now: 1},
		"OnWritable writes":       {do: func(m *markSite) { m.on = m.write; m.has(1001); m.waits(0, 1) }, want: []bool{false, true, false}, now: 1},
		"OnWritable closes":       {do: func(m *markSite) { m.on = m.close; m.has(1001); m.waits(0, 20) }, want: []bool{false}},
		"closed and given back":   {do: (*markSite).giveBack, want: []bool{false}},
		"what OnOpen returns":     {do: func(m *markSite) { m.close(true); m.greeting = []byte("hello"); m.openNext(); m.waits(1001, 1) }, want: []bool{false}, now: 1},
		"a timer writes":          {do: func(m *markSite) { m.conn.After(1, func(gnet.Conn) { m.c.outbound = 1001 }); m.waits(0, 1) }, want: []bool{false}, now: 1},
		"exempt":                  {do: (*markSite).exempt, want: []bool{false, true, false}, now: 1},
		"switched off":            {do: func(m *markSite) { m.has(1001); m.set(OutputMarks{}); m.waits(2000, 20) }, want: []bool{false, true}},
		"higher marks": {do: func(m *markSite) {
			m.has(1001)
			m.set(OutputMarks{High: 3000, Low: 1000})
			m.ask(1001, false)
			m.ask(1000, true)
		}, want: []bool{false, true}},
		"off and on": {do: func(m *markSite) {
			m.set(OutputMarks{})
			m.waits(2000, 20)
			m.set(OutputMarks{High: 1})
			m.waits(2000, 12)
		}, want: []bool{false}, now: 1},
		"asked":                    {do: func(m *markSite) { m.ask(1000, true); m.ask(1001, false); m.ask(501, false); m.ask(500, true) }, want: []bool{false, true}},
		"below the hard limit":     {cfg: limited, do: func(m *markSite) { m.has(1001); m.waits(0, 1) }, want: []bool{false, true}},
		"above the hard limit":     {cfg: limited, do: func(m *markSite) { m.has(1501); m.has(3002); m.ask(0, false); m.waits(0, 20) }, want: []bool{false}},
		"observed":                 {cfg: observed, do: func(m *markSite) { m.has(1501); m.waits(0, 1) }, want: []bool{false, true}},
		"the handler closes":       {do: func(m *markSite) { m.action = gnet.Close; m.has(1001) }},
		"no marks: always written": {do: func(m *markSite) { m.set(OutputMarks{}); m.ask(9999, true) }},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarkSite(t, tc.cfg)
			tc.do(m)
			require.Equal(t, tc.want, m.told)
			if m.conn.state() != nil {
				m.conn.loop.publish(m.watch.Clock.Stamp())
			}
			require.Equal(t, tc.now, m.Stats().Unwritable)
			if len(m.watch.Wakes) > 0 { // Update wakes the driver
				<-m.watch.Wakes
			}
			m.pass(t, m.watch.Clock.Tick())
			require.Empty(t, m.watch.Wakes, "no task is wanted before the next tick")
			m.OnClose(m.c, nil)
			require.Zero(t, m.Stats().Unwritable)
			require.Empty(t, m.conn.loop.outputs.marks.waiting)
		})
	}
}

func (m *markSite) write(writable bool) {
	if writable {
		m.c.outbound = 1001
	}
}

func (m *markSite) close(bool) { _ = m.el.Close(m.c) }

// ask makes n bytes wait and asks Writable.
func (m *markSite) ask(n int, want bool) {
	m.t.Helper()
	m.c.outbound = n
	require.Equal(m.t, want, m.conn.Writable(), n)
}

// set changes the marks, and lets a tick pass.
func (m *markSite) set(to OutputMarks) {
	require.NoError(m.t, m.Update(func(cfg *Config) {
		if to.High > 0 {
			to.OnWritable = func(_ gnet.Conn, writable bool) { m.told = append(m.told, writable) }
		}
		cfg.OutputMarks = to
	}))
	m.pass(m.t, m.watch.Clock.Tick())
}

// giveBack closes a connection that is not writable. The next one has its descriptor.
func (m *markSite) giveBack() {
	old, closed := m.conn, m.c
	m.has(1001)
	m.OnClose(closed, nil)
	m.ask(0, false) // of the closed connection
	m.waits(0, 20)
	m.opened--
	m.openNext()
	require.Equal(m.t, closed.fd, m.c.fd)
	m.ask(1000, true)
	m.waits(0, 20)
	require.False(m.t, old.Writable())
}

// exempt takes a connection that is not writable out of the limits, and puts it back.
func (m *markSite) exempt() {
	m.has(1001)
	m.conn.Exempt(true)
	m.ask(2000, true)
	m.waits(2000, 20)
	m.has(2000)
	m.conn.Exempt(false)
}

// TestTheGreetingOfAClosedConnectionIsDropped writes more than the high mark in OnOpen. OnWritable
// closes the connection, and the next one gets its number.
func TestTheGreetingOfAClosedConnectionIsDropped(t *testing.T) {
	e, closes := newEcho(), false
	e.open = func(c gnet.Conn) ([]byte, gnet.Action) {
		c.(*scriptedConn).outbound = 1001
		return []byte("hello"), gnet.None
	}
	s := newHandSite(t, e, Config{MaxAge: time.Hour, OutputMarks: OutputMarks{High: 1000, OnWritable: func(c gnet.Conn, _ bool) {
		if closes {
			_ = c.EventLoop().Close(c)
		}
	}}})
	open := newScriptedConn(s.el, 1)
	out, _ := s.OnOpen(open)
	require.Equal(t, "hello", string(out))
	s.OnClose(open, nil)
	closes = true
	out, _ = s.OnOpen(newScriptedConn(s.el, 1))
	require.Empty(t, out)
	require.Zero(t, s.Connections())
	e.open = nil
	l, _, _, _ := s.watched(s.open(1)[0])
	require.Empty(t, l.outputs.marks.waiting)
	s.pass(t, time.Second)
}

// TestAConnectionThatIsReapedIsNotWritable asks in Goodbye, with output above the high mark.
func TestAConnectionThatIsReapedIsNotWritable(t *testing.T) {
	m, asked := (*markSite)(nil), 0
	m = newMarkSite(t, Config{ReadTimeout: time.Second, Reset: []Reason{}, Goodbye: func(gnet.Conn, *ReapError) []byte {
		asked++
		m.ask(0, false)
		m.ask(1001, false)
		return nil
	}})
	m.waits(0, 200)
	require.Equal(t, 1, asked)
	require.Empty(t, m.told)
}
