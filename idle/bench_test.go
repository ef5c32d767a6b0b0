package idle

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// A thinConn is a connection of gnet with methods that touch no memory. When gnet calls OnTraffic,
// the connection is in the cache, because gnet has just read into it. A million idle fakes in
// random order would not be. A thinConn answers each question from its address alone. Benchmarks
// and the tests of memory use it.
type thinConn struct {
	gnet.Conn
}

const thinSize = unsafe.Sizeof(thinConn{})

// thin is the state that all thinConns share.
var thin struct {
	el       gnet.EventLoop
	first    uintptr
	buffered int
}

func (c *thinConn) Fd() int {
	return 8 + int((uintptr(unsafe.Pointer(c))-thin.first)/thinSize)
}
func (c *thinConn) EventLoop() gnet.EventLoop { return thin.el }
func (c *thinConn) InboundBuffered() int      { return thin.buffered }

// sink is a handler that reads everything and does nothing else. Benchmarks and tests of the Reaper
// use it.
type sink struct{ gnet.BuiltinEventEngine }

func (*sink) OnTraffic(gnet.Conn) gnet.Action {
	thin.buffered = 0
	return gnet.None
}

func (c *thinConn) OutboundBuffered() int { return 0 }

// readOnly is the smallest Config, and everything switches all limits on. Only IsPong is left out:
// it is a function of the user.
var (
	readOnly   = Config{ReadTimeout: time.Hour}
	everything = Config{
		ReadTimeout: time.Hour, WriteTimeout: time.Hour, AllTimeout: time.Hour, Jitter: 0.1,
		FirstByteTimeout: time.Hour, HandshakeTimeout: time.Hour, WriteStallTimeout: time.Hour,
		OutputLimit: OutputLimit{Hard: 1 << 20, Soft: 1 << 19, SoftFor: time.Hour, Total: 1 << 30},
		MinRate:     MinRate{BytesPerSecond: 1, Window: time.Hour, Grace: time.Hour, Always: true},
		Heartbeat:   Heartbeat{Interval: time.Hour, Ping: func(gnet.Conn) []byte { return nil }},
		MaxAge:      time.Hour, MaxAgeGrace: time.Hour, KeepClosed: 100,
		Goodbye: func(gnet.Conn, *ReapError) []byte { return nil },
	}
)

// openAll returns a Reaper that watches n connections. The driver does not run, so that only the
// message path is measured.
func openAll(tb testing.TB, n int, cfg Config) (*Reaper, []thinConn) {
	tb.Helper()
	checked, err := cfg.check(0, nil)
	require.NoError(tb, err)
	r := newReaper(&sink{}, checked, mono.Real(), realKernel)
	thin.el = &fakeEventLoop{}
	l := newLoop(r, thin.el, 1)
	r.registry.Store(newRegistry([]*loop{l}))
	all := make([]thinConn, n)
	thin.first = uintptr(unsafe.Pointer(&all[0]))
	for i := range all {
		r.add(l, &all[i])
	}
	return r, all
}

// A draw returns random numbers below n without memory of its own: a list of a million connections
// would push the measured data out of the cache. It is Marsaglia's xorshift generator ("Xorshift
// RNGs", Journal of Statistical Software 2003).
type draw struct{ x, n uint64 }

func newDraw(n int) *draw { return &draw{x: 88172645463325252, n: uint64(n)} }

func (d *draw) next() uint64 {
	d.x ^= d.x << 13
	d.x ^= d.x >> 7
	d.x ^= d.x << 17
	return d.x >> 32 * d.n >> 32
}

// BenchmarkHeartbeat measures one OnTraffic with new bytes: without the Reaper, with a Reaper that
// watches reads only, and with everything switched on. The difference is the cost of the Reaper.
// One reading of the clock is measured beside it.
func BenchmarkHeartbeat(b *testing.B) {
	for _, n := range []int{1000, 100_000, 1_000_000} {
		for _, with := range []struct {
			name string
			cfg  Config
		}{{"bare", readOnly}, {"reaper", readOnly}, {"everything", everything}} {
			r, conns := openAll(b, n, with.cfg)
			var handler gnet.EventHandler = r
			if with.name == "bare" {
				handler = r.next
			}
			for i := range conns { // the first byte takes another path
				thin.buffered = 4
				handler.OnTraffic(&conns[i])
			}
			b.Run(fmt.Sprintf("conns=%d/handler=%s", n, with.name), func(b *testing.B) {
				b.ReportAllocs()
				random := newDraw(n)
				for b.Loop() {
					thin.buffered = 4
					handler.OnTraffic(&conns[random.next()])
				}
			})
		}
	}
	b.Run("time.Now", func(b *testing.B) {
		for b.Loop() {
			time.Now()
		}
	})
}

func bytesPerConnection(tb testing.TB, n, loops int) float64 {
	tb.Helper()
	r, err := Middleware(&sink{}, everything)
	require.NoError(tb, err)
	conns := make([]fakeConn, n)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	all := make([]*loop, loops)
	for i := range all {
		all[i] = newLoop(r, &fakeEventLoop{}, uint32(i))
	}
	for i := range conns {
		conns[i].fd = 8 + i
		r.add(all[rand.IntN(loops)], &conns[i])
	}
	perConn := float64(heap()-before) / float64(n)
	runtime.KeepAlive(all)
	return perConn
}

// maxBytesPerConnection is a budget. Measured on 2026-11-26: 150.
const maxBytesPerConnection = 154

func TestMemoryPerConnectionIsWithinBudget(t *testing.T) {
	got := bytesPerConnection(t, 100_000, 2)
	t.Logf("%.1f bytes per connection with 2 event loops", got)
	require.LessOrEqual(t, got, float64(maxBytesPerConnection))
}

func TestHeartbeatDoesNotAllocate(t *testing.T) {
	for _, cfg := range []Config{readOnly, everything} {
		r, conns := openAll(t, 1000, cfg)
		i := 0
		message := func() {
			thin.buffered = i % 3
			r.OnTraffic(&conns[i%len(conns)])
			i++
		}
		require.Zero(t, testing.AllocsPerRun(10_000, message))
	}
}
