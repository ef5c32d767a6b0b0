package idlenet

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheLongestSilentConnectionMakesRoom(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{MaxConnections: 3, ShedProtect: 50 * time.Millisecond})
	silent := e.dial()
	first := e.accepted()
	time.Sleep(50 * time.Millisecond)
	busy := e.dial()
	e.accepted()
	held := e.dial()
	heldConn := e.accepted()
	e.Hold(heldConn)
	time.Sleep(100 * time.Millisecond)
	say(t, busy, "hello")
	say(t, e.dial(), "hello")
	require.ErrorIs(t, e.Reason(first), Shed)
	_, err := silent.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	say(t, busy, "I stay")
	say(t, held, "I stay")
	require.EqualValues(t, 1, e.Stats().Reaped[Shed])
	require.Zero(t, e.Stats().Refused)
}

func TestANewConnectionIsRefusedIfNoneMayEnd(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{MaxConnections: 2, ShedProtect: time.Hour})
	a, b := e.dial(), e.dial()
	say(t, a, "hello")
	say(t, b, "hello")
	refused, err := net.Dial("tcp", e.Addr().String())
	require.NoError(t, err)
	defer refused.Close()
	_, err = refused.Read(make([]byte, 1))
	require.Error(t, err)
	say(t, a, "I stay")
	say(t, b, "I stay")
	require.EqualValues(t, 1, e.Stats().Refused)
	require.Zero(t, e.Stats().Reaped[Shed])
	require.Equal(t, 2, e.Connections())
}
