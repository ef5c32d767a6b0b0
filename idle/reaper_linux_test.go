package idle

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/reap"
)

// TestRacesGiveExactlyOneReason makes expiry, data, a FIN or reset of the peer, a close by the user
// and Update happen at about the same time. The goodbye contains the reason, so that the client can
// tell whether it came early.
func TestRacesGiveExactlyOneReason(t *testing.T) {
	t.Parallel()
	type fate struct{ opens, closes, reaps atomic.Int32 }
	timeouts := []time.Duration{100 * time.Millisecond, 150 * time.Millisecond}
	cfg := Config{ReadTimeout: timeouts[0], Tick: 10 * time.Millisecond, Goodbye: func(_ gnet.Conn, reason *ReapError) []byte {
		return []byte(reason.Reason.Error() + " " + reason.Limit.String())
	}}
	s := newSite(t, cfg, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			f := &fate{}
			f.opens.Add(1)
			c.SetContext(f)
			return nil, gnet.None
		}
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); {
			case bytes.Contains(b, []byte("close")):
				return gnet.Close
			case bytes.Contains(b, []byte("later")):
				time.AfterFunc(rand.N(2*timeouts[1]), func() { _ = c.Close() })
			}
			return gnet.None
		}
		s.closed = func(c gnet.Conn, err error) gnet.Action {
			f := c.Context().(*fate)
			assert.EqualValues(t, 1, f.closes.Add(1), "OnClose is called once")
			var reason *ReapError
			if errors.As(err, &reason) {
				f.reaps.Add(1)
				assert.GreaterOrEqual(t, reason.Lasted, reason.Limit)
			}
			return gnet.None
		}
	})
	over := time.Now().Add(5 * time.Second)
	var running sync.WaitGroup
	var early, reaped atomic.Int32
	running.Go(func() {
		for time.Now().Before(over) {
			time.Sleep(rand.N(20 * time.Millisecond))
			cfg.ReadTimeout = timeouts[rand.IntN(len(timeouts))]
			assert.NoError(t, s.reaper.Update(to(cfg)))
		}
	})
	client := func() {
		sent := time.Now()
		c, err := net.Dial("tcp", s.addr.String())
		if !assert.NoError(t, err) {
			return
		}
		defer c.Close()
		for range rand.IntN(3) {
			time.Sleep(rand.N(timeouts[0] * 12 / 10)) // sometimes close to the deadline
			at := time.Now()
			if _, err := c.Write([]byte("beat")); err != nil {
				break
			}
			if time.Since(sent) < timeouts[0] { // a later byte may arrive after the verdict
				sent = at
			}
		}
		switch rand.IntN(5) {
		case 0:
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		case 1:
			return
		case 2:
			_, _ = c.Write([]byte("close"))
		case 3:
			_, _ = c.Write([]byte("later"))
		}
		got, _ := io.ReadAll(c)
		took := time.Since(sent)
		if limit, ok := strings.CutPrefix(string(got), "read idle "); ok {
			reaped.Add(1)
			d, err := time.ParseDuration(limit)
			if assert.NoError(t, err) && took < d {
				early.Add(1)
			}
		}
	}
	for range 100 {
		running.Go(func() {
			for time.Now().Before(over) {
				client()
			}
		})
	}
	running.Wait()
	eventually(t, "all connections are closed", func() bool { return s.reaper.Stats().Connections == 0 })
	stats := s.reaper.Stats()
	t.Logf("%+v", stats)
	require.Zero(t, early.Load(), "closed before their timeout")
	require.NotZero(t, reaped.Load())
	require.Equal(t, stats.Opened, stats.Closed)
	require.Len(t, s.reasons(), int(stats.Opened), "one OnClose per connection")
}

// TestNoVerdictHitsAnotherConnection opens and closes connections so that descriptors are reused
// all the time, while others expire. Each client sends its name, and the goodbye repeats the name
// of the connection that the verdict is about.
func TestNoVerdictHitsAnotherConnection(t *testing.T) {
	t.Parallel()
	cycles := 20_000
	if needs.IsLong() {
		cycles = 100_000
	}
	cfg := Config{ReadTimeout: 60 * time.Millisecond, Tick: 5 * time.Millisecond, Goodbye: func(c gnet.Conn, _ *ReapError) []byte {
		name, _ := c.Context().(string)
		return []byte("bye " + name)
	}}
	s := newSite(t, cfg, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			b, _ := c.Next(-1)
			c.SetContext(string(b))
			_, _ = c.Write(b)
			return gnet.None
		}
	})
	var next, reaped atomic.Int64
	cycle := func(b []byte) error {
		n := next.Add(1)
		began := time.Now()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(n>>8), byte(n)|1)}}).Dial("tcp", s.addr.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.(*net.TCPConn).SetLinger(0) // leave no TIME_WAIT
		name := fmt.Sprintf("%08d", n)
		sent := time.Now()
		_, err = c.Write([]byte(name))
		written := time.Now()
		if err == nil {
			_, err = io.ReadFull(c, b[:len(name)])
		}
		if err != nil && written.Sub(began) >= cfg.ReadTimeout { // reaped: the test was too slow
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s was closed %v after its message: %w", name, time.Since(written), err)
		}
		if got := string(b[:len(name)]); got != name {
			return fmt.Errorf("%s got the echo of %s", name, got)
		}
		if n%50 != 0 {
			return nil
		}
		got, err := io.ReadAll(c) // the client stays silent
		if took := time.Since(sent); took < cfg.ReadTimeout || string(got) != "bye "+name {
			return fmt.Errorf("%s got %q, %v, after %v", name, got, err, took)
		}
		reaped.Add(1)
		return nil
	}
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			b := make([]byte, 64)
			for next.Load() < int64(cycles) {
				if err := cycle(b); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	running.Wait()
	t.Logf("%d cycles, %d reaped", next.Load(), reaped.Load())
	require.GreaterOrEqual(t, reaped.Load(), int64(cycles/50-16))
	eventually(t, "all connections are closed", func() bool { return s.reaper.Stats().Connections == 0 })
}

func TestAHalfClosedConnectionIsClosedAndNotReaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, WriteStallTimeout: limitOf}, nil)
	c := dial(t, s.addr)
	eventually(t, "the connection is open", func() bool { return s.reaper.Stats().Connections == 1 })
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	awaitClose(t, c)
	time.Sleep(2 * limitOf)
	require.Len(t, s.reasons(), 1)
	require.NotErrorIs(t, s.reasons()[0], reap.ReadIdle)
	require.Zero(t, s.reaper.Stats().Reaped.Total())
}

// TestAPeerThatVanishesIsReaped has peers that end without a FIN: the socket is closed as by a
// machine that loses power, or the network is deleted. Neither end is notified.
func TestAPeerThatVanishesIsReaped(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]func(t testing.TB, wire *faultynet.Cable, c net.Conn){
		"power": func(t testing.TB, _ *faultynet.Cable, c net.Conn) {
			raw, err := c.(*net.TCPConn).SyscallConn()
			require.NoError(t, err)
			require.NoError(t, raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
			}))
			require.NoError(t, err)
			require.NoError(t, c.Close())
		},
		"cable": func(t testing.TB, wire *faultynet.Cable, _ net.Conn) { wire.Pull(t) },
	} {
		fair.RunParallel(t, name, func(t testing.TB) {
			wire := faultynet.New(t)
			s := newSite(t, Config{ReadTimeout: limitOf}, func(s *site) { s.listen = "tcp://0.0.0.0:0" })
			c := wire.Dial(t, faultynet.PortOf(s.addr))
			for range 24 {
				send(t, c, "b")
				time.Sleep(limitOf / 8)
			}
			require.Empty(t, s.reasons(), "the peer is alive")
			began := time.Now()
			send(t, c, "b")
			time.Sleep(limitOf / 4) // packets to a socket that is gone would be answered by a reset
			vanish(t, wire, c)
			s.requireReaped(t, began, limitOf, reap.ReadIdle)
		})
	}
}

func TestAFrozenPeerIsReaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: 2 * limitOf}, nil)
	port := faultynet.PortOf(s.addr)
	peer := exec.Command("bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; while :; do echo x >&3; sleep 0.05; done", port))
	require.NoError(t, peer.Start())
	defer func() {
		_ = peer.Process.Kill()
		_ = peer.Wait()
	}()
	eventually(t, "a heartbeat arrives", func() bool { return s.reaper.Stats().Reads > 0 })
	time.Sleep(3 * limitOf)
	require.Empty(t, s.reasons(), "the peer is alive")
	require.NoError(t, peer.Process.Signal(syscall.SIGSTOP))
	reason := s.requireReaped(t, time.Now(), limitOf, reap.ReadIdle)
	require.GreaterOrEqual(t, reason.Lasted, 2*limitOf)
}

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
