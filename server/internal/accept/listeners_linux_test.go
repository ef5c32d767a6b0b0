package accept

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAPollerDoesNotWatchAPausedListener pauses without filters, as a process without CAP_NET_ADMIN
// does.
func TestAPollerDoesNotWatchAPausedListener(t *testing.T) {
	// The events that the loops of gnet and its acceptor watch for.
	for _, events := range []uint32{unix.EPOLLIN | unix.EPOLLPRI, unix.EPOLLIN | unix.EPOLLET | unix.EPOLLRDHUP} {
		// Not a socket of package net, because the poller of the runtime would watch it.
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		require.NoError(t, unix.Listen(fd, 16))
		addr, err := unix.Getsockname(fd)
		require.NoError(t, err)
		poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		require.NoError(t, err)
		defer unix.Close(poller)
		_, err = watchesOf([]int{fd})
		require.ErrorContains(t, err, "no poller watches descriptor")
		const data = 0x7fff_1234_5678
		require.NoError(t, unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: data & (1<<32 - 1), Pad: data >> 32}))
		sees := func() bool {
			got := make([]unix.EpollEvent, 1)
			n, err := unix.EpollWait(poller, got, 200)
			require.NoError(t, err)
			if n == 1 {
				require.EqualValues(t, data, int64(got[0].Pad)<<32|int64(uint32(got[0].Fd)), "the poller gets back its own data")
				require.EqualValues(t, unix.EPOLLIN, got[0].Events)
			}
			return n == 1
		}

		l := listeners{fds: []int{fd}, backlog: 16}
		l.watches, err = watchesOf(l.fds)
		require.NoError(t, err)
		require.Len(t, l.watches, 1)
		require.False(t, l.dropsAll())
		require.NoError(t, l.pause())
		c, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", addr.(*unix.SockaddrInet4).Port), 10*time.Second)
		require.NoError(t, err, "the kernel connects it")
		defer c.Close()
		require.False(t, sees(), "the poller is not woken")
		dial := func(within time.Duration) error {
			c, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", addr.(*unix.SockaddrInet4).Port), within)
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
			return err
		}
		require.Error(t, dial(300*time.Millisecond), "the second client is dropped")
		require.NoError(t, l.resume())
		require.NoError(t, dial(10*time.Second))
		require.True(t, sees(), "the first client has waited")
	}
}

// TestAReusedDescriptorIsLeftAlone gives the descriptor of a closed listener to a socket that does
// not listen.
func TestAReusedDescriptorIsLeftAlone(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	for name, l := range map[string]listeners{
		"filter":  {fds: []int{fd}},
		"pollers": {fds: []int{fd}, backlog: 16, watches: []watch{{poller: -1, fd: fd}}},
	} {
		require.ErrorContains(t, l.pause(), "does not listen any more", name)
		require.ErrorContains(t, l.resume(), "does not listen any more", name)
	}
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	require.NoError(t, err)
	require.Zero(t, listening, "it was not made to listen")
}

func TestWatchesOfAPollerAreParsed(t *testing.T) {
	const info = "pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t1057\n" +
		"tfd:        9 events:       1b data:                9  pos:0 ino:21 sdev:8\n" +
		"tfd:        7 events: 80002019 data:     c000123456789 pos:0 ino:22 sdev:8\n"
	got := parseWatches(3, info, []int{7})
	require.Equal(t, []watch{{3, 7, unix.EpollEvent{Events: 0x80002019, Fd: 0x23456789, Pad: 0xc0001}}}, got)
	require.Len(t, parseWatches(3, info, []int{7, 9}), 2)
	require.Empty(t, parseWatches(3, info, nil))
}
