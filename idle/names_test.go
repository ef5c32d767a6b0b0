package idle

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

func TestReapErrorText(t *testing.T) {
	const prefix = "idle: connection reaped: "
	s := time.Second
	for _, tc := range []struct {
		err  ReapError
		want string
	}{
		{ReapError{Reason: reap.ReadIdle, Limit: time.Minute, Lasted: 61234567890}, "read idle for 1m1.235s, limit 1m0s"},
		{ReapError{Reason: reap.NoHandshake, Limit: 5 * s, Lasted: 6 * s}, "no handshake for 6s, limit 5s"},
		{ReapError{Reason: reap.MaxAge, Limit: time.Hour, Lasted: time.Hour + s}, "max age for 1h0m1s, limit 1h0m0s"},
		{ReapError{Reason: reap.OverLimit, Bytes: 90, LimitBytes: 80}, "over limit: 90 bytes of output wait, limit 80"},
		{ReapError{Reason: reap.OverLimit, Bytes: 90, LimitBytes: 80, Limit: 5 * s, Lasted: 6 * s},
			"over limit: 90 bytes of output wait, more than 80 for 6s, limit 5s"},
		{ReapError{Reason: reap.BelowMinRate, Bytes: 9, LimitBytes: 500, Limit: 5 * s, Lasted: 5 * s}, "below min rate: 9 bytes arrived in 5s, fewer than 500"},
		{ReapError{Reason: reap.Kicked}, "kicked"},
		{ReapError{Reason: reap.Shed, Lasted: 3 * s}, "shed to make room, after a silence of 3s"},
	} {
		require.EqualError(t, &tc.err, "connection reaped: "+tc.want)
		tc.err.Package = "idle"
		require.EqualError(t, &tc.err, prefix+tc.want)
		require.Equal(t, tc.want, tc.err.Text())
	}
	require.False(t, errors.Is(&ReapError{Reason: reap.ReadIdle, Limit: s}, os.ErrClosed))
}

func TestEachReasonIsAnError(t *testing.T) {
	names := map[string]bool{}
	for reason := verdict.First; reason <= verdict.Last; reason++ {
		err := error(&ReapError{Reason: reason, Limit: time.Second})
		for other := verdict.First; other <= verdict.Last; other++ {
			require.Equal(t, reason == other, errors.Is(err, other), "%#v and %#v", reason, other)
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		names[reason.Error()] = true
		text, err := reason.MarshalText()
		require.NoError(t, err)
		require.Equal(t, reason.Error(), string(text))
	}
	require.Len(t, names, int(verdict.Last))
	for _, e := range []ReapError{{Reason: reap.Kicked}, {Reason: reap.Shed}, {Reason: reap.Drained}, {Reason: reap.OverLimit, Bytes: 2, LimitBytes: 1}} {
		require.NotErrorIs(t, &e, os.ErrDeadlineExceeded, "the reason is no timeout")
		require.False(t, e.Timeout())
	}
	require.Equal(t, "reason 0", Reason(0).Error())
	require.Equal(t, "reason 200", Reason(200).Error())
	require.False(t, errors.Is(&ReapError{Reason: 200}, reap.ReadIdle))
}
