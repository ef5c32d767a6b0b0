package idle

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReapErrorText(t *testing.T) {
	const prefix = "idle: connection reaped: "
	s := time.Second
	for _, tc := range []struct {
		err  ReapError
		want string
	}{
		{ReapError{Kind: ReadIdle, Limit: time.Minute, Lasted: 61234567890}, "read idle for 1m1.235s, limit 1m0s"},
		{ReapError{Kind: NoHandshake, Limit: 5 * s, Lasted: 6 * s}, "no handshake for 6s, limit 5s"},
		{ReapError{Kind: TooOld, Limit: time.Hour, Lasted: time.Hour + s}, "too old for 1h0m1s, limit 1h0m0s"},
		{ReapError{Kind: OverLimit, Bytes: 90, LimitBytes: 80}, "over limit: 90 bytes of output wait, at most 80 may"},
		{ReapError{Kind: OverLimit, Bytes: 90, LimitBytes: 80, Limit: 5 * s, Lasted: 6 * s},
			"over limit: 90 bytes of output wait, more than 80 for 6s, limit 5s"},
		{ReapError{Kind: SlowPeer, Bytes: 9, LimitBytes: 500, Limit: 5 * s, Lasted: 5 * s}, "slow peer: 9 bytes came in 5s, fewer than 500"},
		{ReapError{Kind: Kicked}, "kicked"},
		{ReapError{Kind: Shed, Lasted: 3 * s}, "shed to make room, after a silence of 3s"},
	} {
		require.EqualError(t, &tc.err, prefix+tc.want)
	}
	require.False(t, errors.Is(&ReapError{Kind: ReadIdle, Limit: s}, os.ErrClosed))
}

func TestEachKindHasItsSentinel(t *testing.T) {
	require.Len(t, Kinds(), int(lastKind))
	for _, k := range Kinds() {
		err := error(&ReapError{Kind: k, Limit: time.Second})
		for _, other := range Kinds() {
			require.Equal(t, k == other, errors.Is(err, sentinels[other]), "%v and %v", k, other)
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, k.String(), sentinels[k].Error())
		text, err := k.MarshalText()
		require.NoError(t, err)
		require.Equal(t, k.String(), string(text))
	}
	for _, e := range []ReapError{{Kind: Kicked}, {Kind: Shed}, {Kind: Drained}, {Kind: OverLimit, Bytes: 2, LimitBytes: 1}} {
		require.NotErrorIs(t, &e, os.ErrDeadlineExceeded, "no time has passed")
		require.False(t, e.Timeout())
	}
	require.Equal(t, "Kind(0)", Kind(0).String())
	require.Equal(t, "Kind(200)", Kind(200).String())
	require.False(t, errors.Is(&ReapError{Kind: 200}, ErrReadIdle))
}
