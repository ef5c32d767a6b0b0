package idle

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

// oracleEnv sets how many peers TestOracleOfRealPeers runs at the same time, and how often it stops
// the server, such as "400x6".
const oracleEnv = "IDLEWHEEL_ORACLE"

const (
	oracleTimeout = time.Second
	oracleTick    = 50 * time.Millisecond

	// oracleGap is the shortest stop for which the oracle expects a grace. The server must notice
	// the stop.
	oracleGap = 6 * oracleTick
)

func init() {
	plays["oracle"] = play{cfg: Config{ReadTimeout: oracleTimeout, Tick: oracleTick}}
}

// An interval is the time between two instants of monotonic.
type interval struct{ from, to int64 }

func (iv interval) length() int64 { return iv.to - iv.from }

// An oracleLife records the actions of the client of a connection.
type oracleLife struct {
	name   string
	dialed int64
	sent   []interval // the system calls that have sent a byte
	silent bool       // the client is silent at the end, and waits for the close
	left   int64      // when the client closed or half-closed, 0 if it did not
}

// live runs one client. The channel end tells it to end soon.
func live(addr net.Addr, end <-chan struct{}) (*oracleLife, error) {
	l := &oracleLife{dialed: monotonic()}
	c, err := dialFrom(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	l.name = c.LocalAddr().String()
	send := func() bool {
		at := monotonic()
		_, err := c.Write([]byte("b"))
		l.sent = append(l.sent, interval{at, monotonic()})
		return err == nil
	}
	awaitEnd := func() {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, _ = c.Read(make([]byte, 1))
	}
	if rand.IntN(4) == 0 { // a slow start
		if rand.IntN(4) == 0 {
			l.silent = true
			awaitEnd()
			return l, nil
		}
		time.Sleep(oracleTimeout/2 + rand.N(oracleTimeout/4))
	}
	for range 1 + rand.IntN(12) {
		if !send() {
			break
		}
		select {
		case <-end:
			return l, nil
		case <-time.After(oracleTimeout/10 + rand.N(oracleTimeout*6/10)):
		}
	}
	switch rand.IntN(4) {
	case 0, 1:
		l.silent = true
		awaitEnd()
	case 2:
		l.left = monotonic()
		if half, ok := c.(interface{ CloseWrite() error }); ok && rand.IntN(2) == 0 {
			_ = half.CloseWrite()
			awaitEnd()
		}
	case 3:
		l.left = monotonic()
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	return l, nil
}

// An oracle judges the actions of a server by the actions of its peers and by its stops.
// TestOracleOfRealPeers uses it.
type oracle struct {
	t     testing.TB
	stops []interval
	told  int

	lives, reaped int
	early         int // reaped although bytes arrived within the timeout
	hasty         int // reaped before the end of a grace as long as the stop
	wrong         int // reaped for another reason than silence, or after the client had left
	missed        int // silent, and not reaped in time

	shortest time.Duration // silence of a reaped connection
	latest   time.Duration // close after its bound
}

// tell logs the first faults.
func (o *oracle) tell(format string, args ...any) {
	if o.told++; o.told <= 10 {
		o.t.Logf(format, args...)
	}
}

// bound returns the latest instant at which a connection must be closed that is silent since
// silentSince. Each stop that begins before then puts it off by its length, because the server
// cannot judge, and by the time since the first stop, so that lost bytes can arrive.
func (o *oracle) bound(silentSince int64) int64 {
	due, lost := silentSince+int64(oracleTimeout), int64(0)
	// No peer may have been heard for a while. Then verdicts are held for up to one more timeout,
	// and for the same time again after peers are heard.
	const held = 2 * int64(oracleTimeout)
	slack := int64(2 * oracleTick)
	for _, s := range o.stops {
		if s.to > silentSince && s.from <= due+slack+held {
			lost = cmp.Or(lost, s.from)
			due = max(due, s.to, 2*s.to-lost-s.length()+int64(oracleTimeout)/4) + s.length()
			slack += int64(2 * oracleTick) // the server may overestimate a stop
		}
	}
	return due + slack + held
}

// judge compares the life of a client with the trace of its connection.
func (o *oracle) judge(l *oracleLife, tr trace) {
	const within = int64(20 * time.Millisecond) // bytes this close to a verdict may arrive after it
	o.lives++
	since := l.dialed
	for _, s := range l.sent {
		if tr.Closed == 0 || s.to <= tr.Closed-within {
			since = s.from
		}
	}
	if tr.Reaped {
		o.reaped++
		silence := time.Duration(tr.Closed - since)
		o.shortest = min(o.shortest, silence)
		switch {
		case tr.Reason != "read idle":
			o.wrong++
			o.tell("%s was reaped as %s", l.name, tr.Reason)
		case silence < oracleTimeout:
			o.early++
			o.tell("%s was reaped %v after its last byte; %d bytes in all, stops %v", l.name, silence, len(l.sent), o.near(tr.Closed))
		case l.left != 0 && l.left < since+int64(oracleTimeout)-within:
			o.wrong++
			o.tell("%s was reaped though it had left %v after its last byte", l.name, time.Duration(l.left-since))
		}
		for _, s := range o.stops { // stops during the silence
			grace := s.length() - int64(3*oracleTick)
			passed := since+int64(oracleTimeout) < s.from // decided before the stop, carried out after it
			if !passed && s.length() >= int64(oracleGap) && since < s.to && s.to <= tr.Closed && tr.Closed < s.to+grace {
				o.hasty++
				o.tell("%s was reaped %v after a stop of %v", l.name, time.Duration(tr.Closed-s.to), time.Duration(s.length()))
			}
		}
	}
	if !l.silent {
		return
	}
	if n := len(l.sent); n > 0 {
		since = max(since, l.sent[n-1].to)
	}
	bound := o.bound(max(since, tr.Opened))
	switch {
	case tr.Closed == 0:
		o.missed++
		o.tell("%s was never closed", l.name)
	case tr.Closed > bound+int64(room):
		o.missed++
		o.tell("%s was closed %v too late", l.name, time.Duration(tr.Closed-bound))
	default:
		o.latest = max(o.latest, time.Duration(tr.Closed-bound))
	}
}

// near returns when the last stop before an instant was, relative to that instant.
func (o *oracle) near(at int64) string {
	for _, s := range slices.Backward(o.stops) {
		if s.from < at {
			return fmt.Sprintf("from %v to %v before", time.Duration(at-s.from), time.Duration(at-s.to))
		}
	}
	return "none"
}

// TestOracleOfRealPeers runs hundreds of peers over TCP and unix sockets that behave at random:
// they send heartbeats, fall silent, half-close, reset, close or start slowly. Their server is
// stopped at random moments. An oracle that knows the actions of each peer decides which
// connections had to be reaped, and which must not be.
func TestOracleOfRealPeers(t *testing.T) {
	t.Parallel()
	peers, stops := 300, 6
	if set := os.Getenv(oracleEnv); set != "" {
		_, err := fmt.Sscanf(set, "%dx%d", &peers, &stops)
		require.NoError(t, err, "%s=%q: set peers and stops, such as 400x6", oracleEnv, set)
	}
	for _, network := range networks {
		fair.RunParallel(t, network.name, func(t testing.TB) {
			server := startPlay(t, "oracle", network.addr(t))
			var mu sync.Mutex
			var lives []*oracleLife // guarded by mu
			end := make(chan struct{})
			finish := sync.OnceFunc(func() { close(end) })
			var living sync.WaitGroup
			defer living.Wait()
			defer finish()
			for range peers / len(networks) {
				living.Go(func() {
					for {
						select {
						case <-end:
							return
						default:
						}
						l, err := live(server.addr, end)
						if !assert.NoError(t, err) {
							return
						}
						mu.Lock()
						lives = append(lives, l)
						mu.Unlock()
					}
				})
			}
			o := &oracle{t: t, shortest: time.Hour, latest: -time.Hour}
			for range stops {
				time.Sleep(oracleTimeout/4 + rand.N(oracleTimeout))
				from := monotonic()
				server.pause()
				server.resume(oracleTimeout/20 + rand.N(oracleTimeout*3/2))
				o.stops = append(o.stops, interval{from, monotonic()})
			}
			time.Sleep(oracleTimeout)
			finish()
			living.Wait()
			a := server.await("all connections are closed", func(a account) bool { return a.closed() == len(a.Traces) })
			traces := map[string][]trace{}
			for _, tr := range a.Traces {
				traces[tr.Peer] = append(traces[tr.Peer], tr)
			}
			for _, l := range lives {
				for _, tr := range traces[l.name] {
					if tr.Opened >= l.dialed { // skips earlier connections from the same port
						o.judge(l, tr)
						break
					}
				}
			}
			t.Logf("%d lives, %d reaped, %d stops; %d early or false, %d within the grace, %d wrongly, %d missed; "+
				"shortest silence %v, the last one closed %v after its bound", o.lives, o.reaped, len(o.stops),
				o.early, o.hasty, o.wrong, o.missed, o.shortest, o.latest)
			assert.Equal(t, len(lives), o.lives, "each connection has a trace")
			assert.NotZero(t, o.reaped)
			assert.Zero(t, o.early, "reaped although bytes had come within the timeout")
			assert.Zero(t, o.hasty, "reaped for silence before a grace as long as the stop had passed")
			assert.Zero(t, o.wrong, "reaped for a wrong reason")
			assert.Zero(t, o.missed, "not reaped in time")
		})
	}
}
