package idle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

func TestAConnectionWithNothingDueSoonIsLeftAlone(t *testing.T) {
	for _, cfg := range []Config{
		{MaxAge: 24 * time.Hour},
		{HandshakeTimeout: time.Minute},
		{ReadTimeout: time.Millisecond},
		{TCPKeepAlive: time.Minute, ReadTimeout: time.Hour},
	} {
		cfg, err := cfg.check(0)
		require.NoError(t, err)
		set := newSettings(cfg, 1, overlay{})
		opened, now := verdict.At(mono.Time(time.Second)), mono.Time(2*time.Second)
		f := verdict.Facts{Opened: opened, Heard: opened, Wrote: opened, Ready: true, Held: true}
		v := set.limits.Judge(&f, &verdict.Away{}, now)
		require.GreaterOrEqual(t, v.Next.Sub(now), minHorizon*cfg.Tick, "%+v", cfg)
	}
}

func TestScaledTimeouts(t *testing.T) {
	for _, tc := range []struct {
		by               float64
		least, own, want time.Duration
	}{
		{0, 5 * time.Second, 60 * time.Second, 60 * time.Second},
		{0.5, 10 * time.Second, 60 * time.Second, 35 * time.Second},
		{1, 10 * time.Second, 60 * time.Second, 10 * time.Second},
		{1, 10 * time.Second, 8 * time.Second, 8 * time.Second},
		{1, 0, 60 * time.Second, 100 * time.Millisecond}, // a tick
		{0.5, 10 * time.Second, 0, 0},
	} {
		cfg := Config{Tick: 100 * time.Millisecond, ReadTimeout: tc.own}
		set := newSettings(cfg, 1, overlay{scale: scale{tc.by, tc.least}})
		require.Equal(t, tc.want, set.limits.Read, "%+v", tc)
		require.Equal(t, tc.own, set.limits.own.Read)
	}
}
