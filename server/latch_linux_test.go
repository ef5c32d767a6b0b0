package server

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAPollerDoesNotLookAtAListenerThatIsLatched goes without filters, as a process without CAP_NET_ADMIN has to.
func TestAPollerDoesNotLookAtAListenerThatIsLatched(t *testing.T) {
	for _, events := range []uint32{unix.EPOLLIN | unix.EPOLLPRI, unix.EPOLLIN | unix.EPOLLET | unix.EPOLLRDHUP} { // as gnet's loops and its acceptor
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) // not of package net, whose poller would look at it
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		require.NoError(t, unix.Listen(fd, 16))
		addr, err := unix.Getsockname(fd)
		require.NoError(t, err)
		poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		require.NoError(t, err)
		defer unix.Close(poller)
		_, err = interestsOf([]int{fd})
		require.ErrorContains(t, err, "no poller looks at descriptor")
		const data = 0x7fff_1234_5678
		require.NoError(t, unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: data & (1<<32 - 1), Pad: data >> 32}))
		sees := func() bool {
			got := make([]unix.EpollEvent, 1)
			n, err := unix.EpollWait(poller, got, 200)
			require.NoError(t, err)
			if n == 1 {
				require.EqualValues(t, data, int64(got[0].Pad)<<32|int64(uint32(got[0].Fd)), "it is told what it has asked to be told")
				require.EqualValues(t, unix.EPOLLIN, got[0].Events)
			}
			return n == 1
		}

		l := latch{fds: []int{fd}, backlog: 16}
		l.interests, err = interestsOf(l.fds)
		require.NoError(t, err)
		require.Len(t, l.interests, 1)
		require.False(t, l.drops())
		require.NoError(t, l.close())
		c, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", addr.(*unix.SockaddrInet4).Port), 10*time.Second)
		require.NoError(t, err, "the system connects it")
		defer c.Close()
		require.False(t, sees(), "nobody is told")
		dial := func(within time.Duration) error {
			c, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", addr.(*unix.SockaddrInet4).Port), within)
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
			return err
		}
		require.Error(t, dial(300*time.Millisecond), "more than one are dropped")
		require.NoError(t, l.open())
		require.NoError(t, dial(10*time.Second))
		require.True(t, sees(), "it has waited")
	}
}

// TestALatchLeavesADescriptorOfSomebodyElseAlone gives the descriptor of a listener that is gone to a socket that does not listen.
func TestALatchLeavesADescriptorOfSomebodyElseAlone(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	for name, l := range map[string]latch{
		"filter":  {fds: []int{fd}},
		"pollers": {fds: []int{fd}, backlog: 16, interests: []interest{{poller: -1, fd: fd}}},
	} {
		require.ErrorContains(t, l.close(), "does not listen any more", name)
		require.ErrorContains(t, l.open(), "does not listen any more", name)
	}
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	require.NoError(t, err)
	require.Zero(t, listening, "nobody has made it listen")
}

func TestWhatThePollerLooksForIsRead(t *testing.T) {
	const info = "pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t1057\n" +
		"tfd:        9 events:       1b data:                9  pos:0 ino:21 sdev:8\n" +
		"tfd:        7 events: 80002019 data:     c000123456789 pos:0 ino:22 sdev:8\n"
	got := interestsIn(3, info, []int{7})
	require.Equal(t, []interest{{3, 7, unix.EpollEvent{Events: 0x80002019, Fd: 0x23456789, Pad: 0xc0001}}}, got)
	require.Len(t, interestsIn(3, info, []int{7, 9}), 2)
	require.Empty(t, interestsIn(3, info, nil))
}
