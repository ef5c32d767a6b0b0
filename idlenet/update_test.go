package idlenet

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

func TestUpdate(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{ReadTimeout: time.Minute, CloseGrace: 2 * time.Minute, Tick: 50 * time.Millisecond})
	e.dial()
	c := e.accepted()
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
}

func TestDrain(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{ReadTimeout: time.Minute, ObserveOnly: true})
	for _, bad := range [][2]time.Duration{{-1, 1}, {2, 1}, {0, 20 * 365 * 24 * time.Hour}} {
		require.ErrorContains(t, e.Drain(bad[0], bad[1]), "set a spread from 0 to the deadline")
	}
	e.dial()
	idle := e.accepted()
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
	client := e.dial()
	c := e.accepted()
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
			for _, s := range w.ln.shards { // as if there were no room
				s.shedOne(time.Millisecond)
			}
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
