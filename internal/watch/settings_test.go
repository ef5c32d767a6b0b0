package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// settingsFor returns settings with some limits.
func settingsFor(lim verdict.Limits, tick time.Duration, now overlay) *Settings {
	return newSettings(&testForm, Config{Front: &testConfig{ReadTimeout: lim.Read}, Limits: lim, Tick: tick}, 1, now, nil, 0)
}

func TestAConnectionWithNothingDueSoonIsLeftAlone(t *testing.T) {
	const tick = 100 * time.Millisecond
	for _, lim := range []verdict.Limits{
		{Age: 24 * time.Hour}, {Handshake: time.Minute}, {Read: time.Second}, {Read: time.Hour},
	} {
		set := settingsFor(lim, tick, overlay{})
		opened, now := verdict.At(mono.Time(time.Second)), mono.Time(2*time.Second)
		f := verdict.Facts{Opened: opened, Heard: opened, Wrote: opened, Ready: true, Held: true}
		v := set.Common.Judge(&f, &verdict.Away{}, now)
		require.GreaterOrEqual(t, v.Next.Sub(now), minHorizon*tick, "%+v", lim)
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
		set := settingsFor(verdict.Limits{Read: tc.own}, 100*time.Millisecond, overlay{scale: scale{tc.by, tc.least}})
		require.Equal(t, tc.want, set.Common.Read, "%+v", tc)
		require.Equal(t, tc.want, set.limitsOf(reap.ConnLimits{ReadTimeout: tc.own, AllTimeout: -1}).Read, "%+v", tc)
	}
}

// TestOwnLimitsReplaceThoseOfTheConfig gives a connection each limit that it can have of its own,
// and none instead of each.
func TestOwnLimitsReplaceThoseOfTheConfig(t *testing.T) {
	const s = time.Second
	rate := verdict.Rate{BytesPerSecond: 100, Window: 5 * s}
	set := settingsFor(verdict.Limits{
		Read: s, Write: 2 * s, All: 3 * s, Handshake: 4 * s, Stall: 5 * s, Age: 6 * s, Rate: rate,
		Heartbeat: verdict.Heartbeat{Interval: 7 * s},
	}, 100*time.Millisecond, overlay{})
	own, err := set.checkOwn(reap.ConnLimits{
		ReadTimeout: 10*s + 1, WriteTimeout: 20 * s, AllTimeout: 30 * s, HandshakeTimeout: 40 * s, WriteStallTimeout: 50 * s,
		MaxAge: 60 * s, MinRate: reap.MinRate{BytesPerSecond: 1, Window: s}, NoHeartbeat: true,
	})
	require.NoError(t, err)
	lim := set.limitsOf(own)
	require.Equal(t, 10*s+100*time.Millisecond, lim.Read, "rounded up to a tick")
	require.Equal(t, []time.Duration{20 * s, 30 * s, 40 * s, 50 * s, 60 * s}, []time.Duration{lim.Write, lim.All, lim.Handshake, lim.Stall, lim.Age})
	require.Equal(t, verdict.Rate{BytesPerSecond: 1, Window: s}, lim.Rate)
	require.Zero(t, lim.Heartbeat)

	own, err = set.checkOwn(reap.ConnLimits{
		ReadTimeout: -1, WriteTimeout: -s, AllTimeout: -1, HandshakeTimeout: -1, WriteStallTimeout: -time.Hour, MaxAge: -1,
		MinRate: reap.MinRate{BytesPerSecond: -1},
	})
	require.NoError(t, err)
	lim = set.limitsOf(own)
	require.Zero(t, lim.Read+lim.Write+lim.All+lim.Handshake+lim.Stall+lim.Age)
	require.Zero(t, lim.Rate)
	require.Equal(t, 7*s, lim.Heartbeat.Interval)
}

func TestMistakesInOwnLimits(t *testing.T) {
	set := settingsFor(verdict.Limits{Read: time.Second}, 100*time.Millisecond, overlay{})
	for want, own := range map[string]reap.ConnLimits{
		"test: ReadTimeout of a connection is 87601h0m0s: set at most 29826h9m42.4s": {ReadTimeout: configtable.TenYears + time.Hour},
		"test: MaxAge of a connection is":                                            {MaxAge: configtable.TenYears + time.Hour},
		"MinRate.BytesPerSecond of a connection is 0: set the bytes":                 {MinRate: reap.MinRate{Window: time.Second}},
		"set times that are not negative":                                            {MinRate: reap.MinRate{BytesPerSecond: 1, Grace: -1}},
		"less than 2 GiB in a window":                                                {MinRate: reap.MinRate{BytesPerSecond: 1 << 30, Window: time.Hour}},
	} {
		_, err := set.checkOwn(own)
		require.ErrorContains(t, err, want)
	}
}
