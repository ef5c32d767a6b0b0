package kernel

import (
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// connectMultipath connects two ends by Multipath TCP, with one path.
func connectMultipath(t testing.TB) pair {
	t.Helper()
	var listener net.ListenConfig
	listener.SetMultipathTCP(true)
	ln, err := listener.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	var dialer net.Dialer
	dialer.SetMultipathTCP(true)
	far, err := dialer.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { far.Close() })
	near, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { near.Close() })
	if is, err := near.(*net.TCPConn).MultipathTCP(); err != nil || !is {
		t.Skip("the kernel has no Multipath TCP")
	}
	p := pair{near, far, fdOf(t, near)}
	NoteOpened(p.fd)
	t.Cleanup(func() { multipath.Store(false) })
	return p
}

func TestAskMultipath(t *testing.T) {
	fair.Try(t, func(t testing.TB) {
		p := connectMultipath(t)
		require.Zero(t, ask(p.fd).Received)
		time.Sleep(100 * time.Millisecond)
		write(t, p.far, 1)
		ev := p.eventually(t, "a byte arrives", found(verdict.Unread))
		require.True(t, ev.Dated)
		require.EqualValues(t, 1, ev.Received)
		require.Less(t, ev.Silent, 100*time.Millisecond)
		_, err := p.near.Read(make([]byte, 2))
		require.NoError(t, err)
		write(t, p.near, 1000)
		sent := p.eventually(t, "output is acknowledged", func(ev verdict.Evidence) bool { return ev.Acked == 1000 })
		require.NotEqual(t, ev.Moved, sent.Moved)
		require.Zero(t, sent.Queued+sent.Unsent)
		time.Sleep(200 * time.Millisecond)
		require.GreaterOrEqual(t, ask(p.fd).Silent, 200*time.Millisecond-step)
		require.False(t, ask(p.fd).HalfEnded)
		write(t, p.far, 5) // they stay unread
		require.NoError(t, p.far.(*net.TCPConn).CloseWrite())
		p.eventually(t, "the peer ends its side", func(ev verdict.Evidence) bool { return ev.Found == verdict.Unread && ev.HalfEnded })
		AskUnlessFresh(p.fd, time.Hour, &ev)
		require.True(t, ev.HalfEnded)
		require.NoError(t, p.near.(*net.TCPConn).CloseWrite())
		both := []unix.PollFd{{Fd: int32(p.fd)}}
		n, err := unix.Poll(both, 10_000)
		require.NoError(t, err)
		require.Equal(t, 1, n, "both sides end: POLLHUP")
		ev = ask(p.fd)
		require.Equal(t, verdict.Unread, ev.Found, "the server may still read them")
		require.True(t, ev.HalfEnded)

		p = connectMultipath(t)
		write(t, p.far, 1)
		p.eventually(t, "a byte arrives", found(verdict.Unread))
		require.NoError(t, p.far.(*net.TCPConn).SetLinger(0))
		require.NoError(t, p.far.Close())
		p.eventually(t, "the reset arrives after the byte", found(verdict.Ended))
	})
}

// TestKernelsHaveTheFieldsOfAPath: Linux 5.16 has 232 bytes.
func TestKernelsHaveTheFieldsOfAPath(t *testing.T) {
	var info unix.TCPInfo
	require.Equal(t, unsafe.Offsetof(info.Bytes_received)+8, unsafe.Sizeof(pathInfo{}))
}

// TestAskFindsOutputThatWaits has a peer that does not read.
func TestAskFindsOutputThatWaits(t *testing.T) {
	p := connectMultipath(t)
	require.NoError(t, p.near.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
	_, err := p.near.Write(make([]byte, 64<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	time.Sleep(500 * time.Millisecond)
	full := ask(p.fd)
	require.Positive(t, full.Queued)
	require.Positive(t, full.Unsent)
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, full.Moved, ask(p.fd).Moved, "nothing moves")
	_, err = p.far.Read(make([]byte, 4<<20))
	require.NoError(t, err)
	p.eventually(t, "output moves", func(ev verdict.Evidence) bool { return ev.Moved != full.Moved })
}

func TestOtherSocketsAreNotMultipath(t *testing.T) {
	connectMultipath(t) // so that Ask looks
	for _, network := range []string{"tcp", "unix"} {
		p := connect(t, network)
		write(t, p.far, 1)
		ev := p.eventually(t, "a byte arrives", found(verdict.Unread))
		require.Equal(t, network == "tcp", ev.Dated)
		_, is := askMultipath(p.fd, &ev)
		require.False(t, is)
	}
}

// TestAnswersAboutPaths has two paths, and kernels that know more or less of the whole. The second
// path was heard later, and the connection later still, by a path that has ended.
func TestAnswersAboutPaths(t *testing.T) {
	paths := []unix.TCPInfo{
		{Rcv_mss: 536, Bytes_received: 10, Bytes_acked: 3, Last_data_recv: 900, Last_data_sent: 50, Unacked: 1, Retransmits: 1},
		{Rcv_mss: 536, Bytes_received: 20, Bytes_acked: 4, Last_data_recv: 300, Last_data_sent: 700},
		{Rcv_mss: 536, Last_data_recv: 10, Last_data_sent: 800}, // new
	}
	all := multipathInfo{writeSeq: 1100, acknowledged: 1000, next: 5000, bytesSent: 90, bytesReceived: 25, bytesA: 80,
		lastReceived: 200, lastSent: 40}
	for _, kernel := range []struct {
		size uintptr
		want verdict.Evidence
	}{
		{unsafe.Sizeof(all), verdict.Evidence{Silent: 200, Quiet: 40, Received: 25, Acked: 80, Moved: 170, Counted: true, Unsent: 90}},
		{unsafe.Offsetof(all.lastSent), verdict.Evidence{Silent: 300, Quiet: 50, Received: 25, Acked: 80, Moved: 170, Counted: true, Unsent: 90}},
		{unsafe.Offsetof(all.bytesSent), verdict.Evidence{Silent: 300, Quiet: 50, Received: 5000, Acked: 7, Moved: 1000}},
	} {
		want := kernel.want
		want.Dated, want.Step, want.InFlight, want.Resent, want.Queued = true, step, true, true, 100
		want.Silent, want.Quiet = want.Silent*time.Millisecond, want.Quiet*time.Millisecond
		var ev verdict.Evidence
		for i := range paths {
			addPath(&paths[i], unsafe.Sizeof(pathInfo{}), &ev)
		}
		addWhole(&all, kernel.size, &ev)
		require.Equal(t, want, ev, "a structure of %d bytes", kernel.size)
	}
	var ev verdict.Evidence
	addWhole(&all, unsafe.Sizeof(all), &ev)
	require.True(t, ev.Dated, "no path is left")
	require.Equal(t, 200*time.Millisecond, ev.Silent)
	all.bytesReceived = 0
	for ended, want := range map[bool]uint64{false: 1, true: 0} {
		ev = verdict.Evidence{Received: 20, HalfEnded: ended}
		addWhole(&all, unsafe.Sizeof(all), &ev)
		require.Equal(t, want, ev.Received, "all bytes of the paths wait for others, or are a FIN")
	}
}
