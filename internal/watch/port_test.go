package watch

import (
	"cmp"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A testConfig is the Config of a front end with few settings.
type testConfig struct {
	ReadTimeout, WriteTimeout, AllTimeout, HandshakeTimeout, WriteStallTimeout, MaxAge, MaxAgeGrace time.Duration

	Heartbeat   struct{ Ping func() }
	OnIdle      func()
	ObserveOnly bool
	KeepClosed  int
	OutageGrace time.Duration
	Tick        time.Duration
	Reset       []reap.Reason
	Logger      *slog.Logger
}

var testForm = Form{Package: "test", Table: configtable.Table{
	{Name: "read-timeout", Field: "ReadTimeout", Limit: "Read", Ticks: true, Adjustable: true, Alone: true},
	{Name: "write-timeout", Field: "WriteTimeout", Limit: "Write", Ticks: true},
	{Name: "all-timeout", Field: "AllTimeout", Limit: "All", Ticks: true},
	{Name: "handshake-timeout", Field: "HandshakeTimeout", Limit: "Handshake", Ticks: true},
	{Name: "write-stall-timeout", Field: "WriteStallTimeout", Limit: "Stall", Ticks: true},
	{Name: "max-age", Field: "MaxAge", Limit: "Age", Ticks: true},
	{Name: "max-age-grace", Field: "MaxAgeGrace", Limit: "AgeGrace", Ticks: true},
}}

// A testPort is a front end that closes connections at once. The test moves the clock and sets the
// answer of the kernel.
type testPort struct {
	last mono.Time // when a peer was heard last; now if zero
	Watcher
	Shard[conntable.Record]
	now    mono.Time
	answer verdict.Evidence
	peer   func(*testConn) verdict.Evidence // the answer, if it is set
	asked  int                              // questions to the kernel
	heards int                              // calls of Heard
	takes  time.Duration                    // of each question
	onAsk  func()                           // called by each question
	onIdle func(id uint32, c *testConn)
	closed []*reap.Error
	path   func(c *testConn) (local, remote netip.Addr)

	gone      bool // connections are closed
	stays     bool // a close fails
	farewells int
	keepAlive map[*testConn]time.Duration // as set last
}

type testConn = Conn[conntable.Record]

func newTestPort(t *testing.T, cfg testConfig) *testPort {
	t.Helper()
	return newTestPortOf(t, testForm, cfg)
}

// newAskingPort returns a front end that does not see messages.
func newAskingPort(t *testing.T, cfg testConfig) *testPort {
	t.Helper()
	form := testForm
	form.AsksFirst = true
	return newTestPortOf(t, form, cfg)
}

func newTestPortOf(t *testing.T, form Form, cfg testConfig) *testPort {
	t.Helper()
	p := &testPort{answer: verdict.Evidence{Queued: -1}, keepAlive: make(map[*testConn]time.Duration)}
	checked, err := form.Check(&cfg, 0, func(configtable.Refuse) {})
	require.NoError(t, err)
	p.Watcher.Init(&form, checked, func() mono.Time { return p.now })
	p.Shard.Init(&p.Watcher, 1, p)
	return p
}

// update changes the Config.
func (p *testPort) update(edit func(*testConfig)) error {
	return Update(&p.Watcher, edit, func(cfg *testConfig, tick time.Duration, _ *testConfig) (Config, error) {
		return p.form.Check(cfg, tick, func(configtable.Refuse) {})
	})
}

// open opens a connection.
func (p *testPort) open() (id uint32, c *testConn) {
	p.Watcher.Open.Add(1)
	id, c = p.Take(p.now)
	c.Front = conntable.Record{Heard: p.Clock.Stamp().Short(), Tag: conntable.Fresh}
	p.File(id, c, p.now)
	return id, c
}

// pass moves the clock in ticks for a time, and looks at the connections that are due.
func (p *testPort) pass(d time.Duration) {
	for end := p.now.Add(d); p.now < end; {
		p.now = p.now.Add(p.Clock.Tick())
		p.Move(func(mono.Time) mono.Time { return cmp.Or(p.last, p.now) })
		p.Follow(p.Settings())
		for !p.IsAdapted() {
			p.AdaptSome(1)
		}
		for p.Schedule.Advance(1) {
		}
	}
}

func (p *testPort) Record(c *testConn) *conntable.Record { return &c.Front }

func (p *testPort) Ask(c *testConn, ev *verdict.Evidence) bool {
	if *ev = p.answer; p.peer != nil {
		*ev = p.peer(c)
	}
	p.asked++
	p.now = p.now.Add(p.takes)
	if p.onAsk != nil {
		p.onAsk()
	}
	return !p.gone
}

func (p *testPort) Output(*testConn) int      { return 0 }
func (p *testPort) Remote(*testConn) net.Addr { return nil }
func (p *testPort) Heard(c *testConn, now mono.Time) mono.Time {
	p.heards++
	return p.Clock.Before(c.Front.Heard.Unwrap(p.Clock.Stamp()), now)
}
func (p *testPort) Path(c *testConn) (local, remote netip.Addr) {
	if p.path != nil {
		return p.path(c)
	}
	return local, remote
}
func (p *testPort) Learned(*testConn, bool, *verdict.Evidence, mono.Time) {}
func (p *testPort) Raise(id uint32, c *testConn, ev reap.Event, _ *reap.Error) bool {
	p.Counters.Events[ev.Reason]++
	p.onIdle(id, c)
	return !p.Halted
}
func (p *testPort) Ping(uint32, *testConn) bool                                      { return true }
func (p *testPort) Farewell(*testConn, *reap.Error)                                  { p.farewells++ }
func (p *testPort) SetKeepAlive(c *testConn, d time.Duration)                        { p.keepAlive[c] = d }
func (p *testPort) CountBusy(*outage.Count)                                          {}
func (p *testPort) Drop(id uint32, c *testConn)                                      { p.Remove(id, c) }
func (p *testPort) LookAtEnded(uint32, *testConn, *End, mono.Time) (mono.Time, bool) { return 0, false }

func (p *testPort) Close(id uint32, c *testConn, reason *reap.Error) {
	if p.closed = append(p.closed, reason); p.stays {
		return
	}
	p.CountReap(id, c, reason)
	p.Drop(id, c)
}
