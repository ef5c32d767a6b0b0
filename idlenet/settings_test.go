package idlenet

import (
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

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
	ln, err := Listen(inner, Config{ReadTimeout: time.Minute})
	require.NoError(t, err)
	cfg := ln.Config()
	require.Equal(t, 5*second, cfg.CloseGrace)
	require.Equal(t, []Reason{reap.WriteStall}, cfg.Reset)
	require.Equal(t, 100*time.Millisecond, cfg.Tick)
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
