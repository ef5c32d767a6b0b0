package idlenet

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

func TestUpdate(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		e := newEcho(t, Config{ReadTimeout: time.Minute, CloseGrace: 2 * time.Minute, Tick: 50 * time.Millisecond})
		_, c := e.open()
		err := e.Update(func(cfg *Config) {
			cfg.ReadTimeout, cfg.Jitter, cfg.MaxAgeGrace, cfg.Tick = -1, 2, time.Second, time.Second
			cfg.Heartbeat.Interval, cfg.Reset = time.Second, []Reason{99}
		})
		for _, part := range []string{"ReadTimeout", "Jitter", "MaxAgeGrace", "Tick", "Heartbeat.Ping", "Reset"} {
			require.ErrorContains(t, err, part)
		}
		require.Equal(t, time.Minute, e.Config().ReadTimeout, "nothing has changed")
		require.Zero(t, e.Stats().Updates)
		require.GreaterOrEqual(t, e.watch.Rule().Memory, e.Config().CloseGrace, "an outage may fall into it")

		err = e.Update(func(cfg *Config) {
			cfg.Stamp, cfg.AcceptRate, cfg.Sources.Rate, cfg.Sources.Entries = true, 1, 1, 1
			cfg.Sources.Exempt = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		})
		for _, field := range []string{"Stamp", "AcceptRate", "Sources.Rate", "Sources.Entries", "Sources.Exempt"} {
			require.ErrorContains(t, err, "Config."+field+" cannot change before the next start: leave it at ")
		}
		require.NoError(t, e.Update(func(cfg *Config) { cfg.ReadTimeout, cfg.Tick = 500*time.Millisecond, 0 }))
		require.Equal(t, 50*time.Millisecond, e.Config().Tick)
		require.EqualValues(t, 1, e.Stats().Updates)
		eventually(t, "it ends by the new timeout", func() bool { return e.Reason(c) != nil })
		require.Equal(t, 500*time.Millisecond, e.Reason(c).Limit)
		require.Less(t, e.Reason(c).Late, time.Second)

		cfg := e.Config()
		cfg.Reset[0] = reap.Kicked
		require.Equal(t, []Reason{reap.WriteStall}, e.Config().Reset, "Config returns a copy")
	})
}

func TestAdjust(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{ReadTimeout: time.Minute})
	err := e.Adjust(map[string]time.Duration{"read-timeout": -time.Second, "no-timeout": 1, "jitter": 1})
	for _, mistake := range []string{"no-timeout", "jitter", "Config.ReadTimeout is -1s"} {
		require.ErrorContains(t, err, mistake)
	}
	require.Equal(t, "1m0s", e.Limits()["read-timeout"])
	require.NoError(t, e.Adjust(map[string]time.Duration{"read-timeout": 30 * time.Second}))
	require.Equal(t, "30s", e.Limits()["read-timeout"])
	require.ErrorContains(t, e.ScaleTimeouts(2, 0), "idlenet: ScaleTimeouts by 2")
}

func TestDrain(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	e := newEcho(t, Config{ReadTimeout: time.Minute, ObserveOnly: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, bad := range [][2]time.Duration{{-1, 1}, {2, 1}, {0, 20 * 365 * 24 * time.Hour}} {
		require.ErrorContains(t, e.Drain(bad[0], bad[1]), "set a spread from 0 to the deadline")
	}
	_, idle := e.open()
	e.dial()
	held := e.accepted()
	e.conn(held).Hold()
	time.Sleep(1500 * time.Millisecond) // a connection that was active gets a later moment
	require.NoError(t, e.Drain(200*time.Millisecond, time.Hour))
	require.False(t, e.Config().ObserveOnly)
	eventually(t, "the idle connection ends", func() bool { return e.Reason(idle) != nil })
	require.ErrorIs(t, e.Reason(idle), reap.Drained)
	require.Nil(t, e.Reason(held))

	refused := e.dial()
	_, err := refused.Read(make([]byte, 1))
	require.Error(t, err, "new connections are closed")
	eventually(t, "it is counted", func() bool { return e.Stats().Refused == 1 })
	logging.Of(e.Config().Logger).Flush()
	require.NotContains(t, log.String(), "rejected")

	require.NoError(t, e.Drain(0, 2*time.Hour), "a later deadline changes nothing")
	require.Nil(t, e.Reason(held))
	require.NoError(t, e.Drain(0, 0), "a sooner one does")
	eventually(t, "the held connection ends", func() bool { return e.Reason(held) != nil })
	eventually(t, "no connection is left", func() bool { return e.Connections() == 0 })
	require.EqualValues(t, 2, e.Stats().Reaped[reap.Drained])
}

func TestObserveOnlyEndsNothing(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{ReadTimeout: short, ObserveOnly: true})
	client, c := e.open()
	eventually(t, "it is counted", func() bool { return e.Stats().Observed[reap.ReadIdle] == 1 })
	time.Sleep(3 * short)
	require.EqualValues(t, 1, e.Stats().Observed[reap.ReadIdle], "once")
	require.Nil(t, e.Reason(c))
	say(t, client, "it lives")
	require.NoError(t, e.Update(func(cfg *Config) { cfg.ObserveOnly = false }))
	eventually(t, "it ends", func() bool { return e.Reason(c) != nil })
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// TestObserveOnlyHoldsFromUpdateOn calls Update while the driver calls OnIdle.
func TestObserveOnlyHoldsFromUpdateOn(t *testing.T) {
	var w *simWorld
	w = newQuietWorld(t, Config{
		ReadTimeout: time.Second,
		OnIdle: func(net.Conn, Event) Action {
			w.change(t, func(cfg *Config) { cfg.ObserveOnly = true })
			w.ln.shedOne(passedForRoom, time.Millisecond) // as if there were no room
			return Close
		},
	})
	w.accept()
	w.Sleep(time.Second + w.Slack())
	require.Zero(t, w.ln.Stats().Reaped.Total())
	require.EqualValues(t, 1, w.ln.Stats().Observed.Total(), "a connection is observed once")
	require.EqualValues(t, 1, w.ln.watch.Decided.Load())
}

// TestUpdatesPutOffNoVerdict calls Update all the time.
func TestUpdatesPutOffNoVerdict(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second})
	l := w.accept()
	for age := 0; l.Ended == nil && age < 200; age++ {
		w.change(t, func(cfg *Config) { cfg.MaxAge = time.Hour + time.Duration(age)*time.Second })
		w.Sleep(10 * time.Millisecond)
	}
	require.ErrorIs(t, l.Ended, reap.ReadIdle)
}

func TestListenSaysWhatIsWrong(t *testing.T) {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	const second = time.Second
	for what, tc := range map[string]struct {
		inner net.Listener
		cfg   Config
		want  []string
	}{
		"no listener":                {nil, Config{ReadTimeout: second}, []string{"the listener is nil"}},
		"no listener, no Config":     {nil, Config{}, []string{"the listener is nil", "no limit is set"}},
		"no limit":                   {inner, Config{}, []string{"no limit is set", "set one, for example Config.ReadTimeout to 60s"}},
		"negative values":            {inner, Config{ReadTimeout: -1, MaxConnections: -1, MaxAge: -1}, []string{"ReadTimeout is -1ns", "MaxConnections is -1", "MaxAge is -1ns"}},
		"sources":                    {inner, Config{Sources: sourcelimit.Limits{Rate: -5, IPv4Bits: 33}}, []string{"Sources.Rate is -5", "IPv4Bits is 33"}},
		"Jitter":                     {inner, Config{ReadTimeout: second, Jitter: 2}, []string{"Jitter is 2"}},
		"Heartbeat without Ping":     {inner, Config{Heartbeat: Heartbeat{Interval: second}}, []string{"Heartbeat.Ping is nil: set the func"}},
		"Heartbeat, no Interval":     {inner, Config{ReadTimeout: second, Heartbeat: Heartbeat{Retry: second}}, []string{"Heartbeat.Retry is 1s without Config.Heartbeat.Interval"}},
		"MinRate without rate":       {inner, Config{ReadTimeout: second, MinRate: MinRate{Window: second}}, []string{"MinRate.Window is 1s without Config.MinRate.BytesPerSecond"}},
		"MinRate of gigabytes":       {inner, Config{MinRate: MinRate{BytesPerSecond: 1 << 30, Window: time.Hour}}, []string{"set less than 2 GiB"}},
		"MaxAgeGrace without MaxAge": {inner, Config{ReadTimeout: second, MaxAgeGrace: second}, []string{"MaxAgeGrace is 1s without Config.MaxAge"}},
		"Goodbye without its grace":  {inner, Config{MaxAge: second, Goodbye: func(net.Conn, *ReapError) {}}, []string{"MaxAgeGrace is 0, so Goodbye would never be called"}},
		"a Tick that is too long":    {inner, Config{ReadTimeout: second, Tick: 2 * second}, []string{"Tick is 2s, longer than Config.ReadTimeout of 1s"}},
		"Reset without a reason":     {inner, Config{ReadTimeout: second, Reset: []Reason{77}}, []string{"Reset has reason 77"}},
		"TCPKeepAlive":               {inner, Config{TCPKeepAlive: second}, []string{"TCPKeepAlive is 1s"}},
	} {
		_, err := Listen(tc.inner, tc.cfg)
		for _, want := range tc.want {
			require.ErrorContains(t, err, want, what)
		}
	}
	_, err := Listen(inner, Config{Heartbeat: Heartbeat{Interval: -second, Ping: func(net.Conn) {}}})
	require.ErrorContains(t, err, "Heartbeat.Interval is -1s")
	require.NotContains(t, err.Error(), "Retry", "whose default is the Interval")
	ln, err := Listen(inner, Config{ReadTimeout: time.Minute, Goodbye: func(net.Conn, *ReapError) {}})
	require.NoError(t, err)
	cfg := ln.Config()
	require.Equal(t, 5*second, cfg.CloseGrace)
	require.Equal(t, []Reason{reap.WriteStall}, cfg.Reset)
	require.Equal(t, 100*time.Millisecond, cfg.Tick)
	require.Contains(t, cfg.LogValue().String(), "read-timeout=1m0s")
}

// TestAnUpdateHasToFitAllSockets has a socket that is not TCP between two that are.
func TestAnUpdateHasToFitAllSockets(t *testing.T) {
	ln := newQuietWorld(t, Config{ReadTimeout: time.Hour, Stamp: true}).ln
	for _, addr := range []net.Addr{&net.TCPAddr{}, &net.UnixAddr{Net: "unix"}, &net.TCPAddr{}} {
		require.NoError(t, ln.checkKind(addr))
	}
	err := ln.Update(func(cfg *Config) { cfg.AllTimeout = time.Hour })
	require.ErrorContains(t, err, "AllTimeout is set, but needs TCP on Linux")
}

func TestAReadTimeoutBeforeTheFirstPingIsWarnedOf(t *testing.T) {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	for read, warns := range map[time.Duration]bool{20 * time.Second: true, 97 * time.Second: false} {
		var out syncbuf.Buffer
		ln, err := Listen(inner, Config{
			ReadTimeout: read, Heartbeat: Heartbeat{Interval: 30 * time.Second, Ping: func(net.Conn) {}},
			Logger: slog.New(slog.NewTextHandler(&out, nil)),
		})
		require.NoError(t, err)
		logging.Of(ln.Config().Logger).Flush()
		require.Equal(t, warns, strings.Contains(out.String(), "read-timeout=20s heartbeat=30s pings-take=1m36s"), out.String())
	}
}
