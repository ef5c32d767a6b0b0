package idle

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/engine"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/reap"
)

// testConfig is fast enough for a test and slow enough for a loaded machine.
var testConfig = Config{ReadTimeout: 400 * time.Millisecond, Tick: 20 * time.Millisecond}

var networks = []struct {
	name string
	addr func(testing.TB) string
}{
	{"tcp", func(testing.TB) string { return "tcp://127.0.0.1:0" }},
	{"unix", unixAddr},
}

func TestSilentConnectionIsReapedAndLivingIsNot(t *testing.T) {
	t.Parallel()
	for _, network := range networks {
		fair.Run(t, network.name, func(t testing.TB) {
			e := newEcho()
			r := middleware(t, e, testConfig)
			addr := engine.Serve(t, r, e.booted, network.addr(t))

			opened := time.Now()
			silent, living := dial(t, addr), dial(t, addr)
			sendEvery(t, living, testConfig.ReadTimeout/4)
			took := awaitClose(t, silent).Sub(opened)
			assert.GreaterOrEqual(t, took, testConfig.ReadTimeout, "never early")
			t.Logf("closed %v after it was opened", took)

			time.Sleep(3 * testConfig.ReadTimeout) // several timeouts of the living connection
			require.Len(t, e.reasons(), 1, "the living connection stays")
			require.NoError(t, living.Close())
			eventually(t, "both connections are closed", func() bool { return len(e.reasons()) == 2 })

			reason := e.reasons()[0]
			assert.ErrorIs(t, reason, reap.ReadIdle)
			assert.ErrorIs(t, reason, os.ErrDeadlineExceeded)
			var timeout interface{ Timeout() bool }
			require.ErrorAs(t, reason, &timeout)
			assert.True(t, timeout.Timeout())
			var reaped *ReapError
			require.ErrorAs(t, reason, &reaped)
			assert.Equal(t, reap.ReadIdle, reaped.Reason)
			assert.Equal(t, testConfig.ReadTimeout, reaped.Limit)
			assert.GreaterOrEqual(t, reaped.Lasted, testConfig.ReadTimeout)
			assert.NotErrorIs(t, e.reasons()[1], reap.ReadIdle)

			eventually(t, "the counts arrive", func() bool { return r.Stats().Connections == 0 })
			s := r.Stats()
			assert.EqualValues(t, 2, s.Opened)
			assert.EqualValues(t, 2, s.Closed)
			assert.EqualValues(t, 1, s.Reaped[reap.ReadIdle])
			assert.EqualValues(t, 1, s.Lateness.Count)
			assert.GreaterOrEqual(t, s.Reads, uint64(4))
			assert.NotZero(t, s.Rescheduled)
		})
	}
}

// TestASlowHandlerDoesNotIdleOutItsOwnConnection has a handler that blocks its loop for three
// timeouts.
func TestASlowHandlerDoesNotIdleOutItsOwnConnection(t *testing.T) {
	const timeout, tick = time.Second, 100 * time.Millisecond
	for name, cfg := range map[string]Config{
		"OnOpen":                {ReadTimeout: timeout},
		"OnOpen in a handshake": {HandshakeTimeout: timeout},
		"OnTraffic":             {ReadTimeout: timeout},
	} {
		e, s := newEcho(), (*handSite)(nil)
		e.open = func(gnet.Conn) ([]byte, gnet.Action) {
			if name != "OnTraffic" {
				s.block(3 * timeout)
			}
			return nil, gnet.None
		}
		e.traffic = func(c gnet.Conn) gnet.Action {
			c.(*scriptedConn).buffered = 0
			s.block(3 * timeout)
			return gnet.None
		}
		cfg.Tick, cfg.OutageGrace = tick, -1
		s = newHandSite(t, e, cfg)
		c := s.open(1)[0]
		if name == "OnTraffic" {
			s.receive(c)
		} else {
			require.GreaterOrEqual(t, s.facts(c).Opened.To, mono.Time(3*timeout), "it is open when OnOpen returns")
		}
		s.pass(t, timeout-tick)
		require.Zero(t, s.Stats().Closed, "%s: the time of the handler does not count against the peer", name)
		s.pass(t, 3*tick)
		require.EqualValues(t, 1, s.Stats().Closed, name)
	}
}

// A recorder is a handler that records each call and returns an action. The test of forwarding uses
// it.
type recorder []string

func (r *recorder) note(call string, action gnet.Action) gnet.Action {
	*r = append(*r, call)
	return action
}

func (r *recorder) OnBoot(gnet.Engine) gnet.Action { return r.note("OnBoot", gnet.Close) }
func (r *recorder) OnShutdown(gnet.Engine)         { r.note("OnShutdown", gnet.None) }
func (r *recorder) OnOpen(gnet.Conn) ([]byte, gnet.Action) {
	return []byte("hello"), r.note("OnOpen", gnet.Shutdown)
}
func (r *recorder) OnTraffic(gnet.Conn) gnet.Action      { return r.note("OnTraffic", gnet.Close) }
func (r *recorder) OnClose(gnet.Conn, error) gnet.Action { return r.note("OnClose", gnet.Shutdown) }
func (r *recorder) OnTick() (time.Duration, gnet.Action) {
	return time.Hour, r.note("OnTick", gnet.Shutdown)
}

func TestEveryCallAndActionIsForwarded(t *testing.T) {
	rec := &recorder{}
	s := newHandSite(t, rec, testConfig)
	c := newScriptedConn(s.el, 1)
	require.Equal(t, gnet.Close, s.OnBoot(gnet.Engine{}))
	delay, action := s.OnTick()
	require.Equal(t, time.Hour, delay)
	require.Equal(t, gnet.Shutdown, action)
	out, action := s.OnOpen(c)
	require.Equal(t, "hello", string(out))
	require.Equal(t, gnet.Shutdown, action)
	require.Equal(t, gnet.Close, s.OnTraffic(c))
	require.Equal(t, gnet.Shutdown, s.OnClose(c, nil))
	s.OnShutdown(gnet.Engine{})
	require.Equal(t, recorder{"OnBoot", "OnTick", "OnOpen", "OnTraffic", "OnClose", "OnShutdown"}, *rec)
}

func TestOneReaperServesTwoEngines(t *testing.T) {
	t.Parallel()
	e := newEcho()
	r := middleware(t, e, testConfig)
	var survivor net.Conn
	first := engine.Serve(t, r, e.booted, "tcp://127.0.0.1:0")
	t.Run("second engine", func(short *testing.T) {
		second := engine.Serve(short, r, e.booted, "tcp://127.0.0.1:0")
		survivor = dial(t, first)
		for range 8 {
			dial(t, first)
			dial(t, second)
		}
		eventually(t, "all connections are watched", func() bool { return r.Stats().Opened == 17 })
	})
	require.NotNil(t, survivor)
	eventually(t, "the first engine works without the second", func() bool { return r.Stats().Reaped[reap.ReadIdle] >= 9 })
	awaitClose(t, dial(t, first))
	eventually(t, "no connection is left", func() bool { return r.Stats().Connections == 0 })
}

func TestNoStateIsKeptForDatagrams(t *testing.T) {
	t.Parallel()
	e := newEcho()
	r := middleware(t, e, testConfig)
	addr := engine.Serve(t, r, e.booted, "udp://127.0.0.1:0")
	for range 10 {
		c := dial(t, addr)
		send(t, c, "x")
		_, err := c.Read(make([]byte, 8))
		require.NoError(t, err, "datagrams are forwarded")
	}
	client, err := gnet.NewClient(r, gnet.WithLogger(engine.Quiet{}))
	require.NoError(t, err)
	require.NoError(t, client.Start())
	_, err = client.Dial("udp", addr.String())
	require.NoError(t, err)
	require.Zero(t, r.Stats().Opened)
	require.Nil(t, r.driver, "datagrams need no driver")
	require.NoError(t, client.Stop())
}

func TestPanicOfTheHandlerIsNotSwallowed(t *testing.T) {
	e := newEcho()
	e.traffic = func(gnet.Conn) gnet.Action { panic("the handler panics") }
	s := newHandSite(t, e, testConfig)
	require.PanicsWithValue(t, "the handler panics", func() { s.receive(s.open(1)[0]) })
}
