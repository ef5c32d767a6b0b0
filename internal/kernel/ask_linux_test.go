package kernel

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// slack is the delay that a busy machine may add to a result.
const slack = 2 * time.Second

// A pair has both ends of a connection. The tests query fd, the descriptor of near.
type pair struct {
	near, far net.Conn
	fd        int
}

func connect(tb testing.TB, network string) pair {
	tb.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(tb.TempDir(), "socket")
	}
	ln := sockets.Listen(tb, network, address)
	far := sockets.Dial(tb, network, ln.Addr().String())
	near, err := ln.Accept()
	require.NoError(tb, err)
	tb.Cleanup(func() { near.Close() })
	return pair{near, far, fdOf(tb, near)}
}

// fdOf returns the descriptor of a connection. It is valid until the connection is closed.
func fdOf(tb testing.TB, c net.Conn) (fd int) {
	tb.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	require.NoError(tb, err)
	require.NoError(tb, raw.Control(func(of uintptr) { fd = int(of) }))
	return fd
}

func ask(fd int) (ev verdict.Evidence) {
	Ask(fd, &ev)
	return ev
}

// eventually calls Ask until the result satisfies the condition.
func (p pair) eventually(tb testing.TB, what string, is func(verdict.Evidence) bool) verdict.Evidence {
	tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		ev := ask(p.fd)
		if is(ev) {
			return ev
		}
		require.False(tb, time.Now().After(deadline), "timeout while waiting until %s: %+v", what, ev)
	}
}

func found(f verdict.Finding) func(verdict.Evidence) bool {
	return func(ev verdict.Evidence) bool { return ev.Found == f }
}

func write(tb testing.TB, c net.Conn, n int) {
	tb.Helper()
	_, err := c.Write(make([]byte, n))
	require.NoError(tb, err)
}

func TestAskKernel(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			p := connect(t, network)
			require.Equal(t, verdict.Nothing, ask(p.fd).Found)
			write(t, p.far, 1)
			p.eventually(t, "the byte arrives", found(verdict.Unread))
			_, err := p.near.Read(make([]byte, 1))
			require.NoError(t, err)
			const silence = 200 * time.Millisecond
			time.Sleep(silence)
			ev := ask(p.fd)
			require.Equal(t, verdict.Nothing, ev.Found)
			require.Equal(t, network == "tcp", ev.Dated, "only TCP reports when the last byte came")
			if ev.Dated {
				require.Equal(t, step, ev.Step)
				require.GreaterOrEqual(t, ev.Silent, silence-ev.Step)
				require.Less(t, ev.Silent, silence+slack)
				require.EqualValues(t, 1, ev.Received)
			}
			require.NoError(t, p.far.Close())
			p.eventually(t, "the end arrives", found(verdict.Ended))
		})
	}
}

// TestAFreshByteIsNotLookedFor asks while a byte waits. An old one is found.
func TestAFreshByteIsNotLookedFor(t *testing.T) {
	p := connect(t, "tcp")
	var ev verdict.Evidence
	AskUnlessFresh(p.fd, time.Hour, &ev)
	require.Zero(t, ev.Received)
	write(t, p.far, 1)
	p.eventually(t, "the byte arrives", found(verdict.Unread))
	AskUnlessFresh(p.fd, time.Hour, &ev)
	require.Equal(t, verdict.Nothing, ev.Found)
	require.EqualValues(t, 1, ev.Received)
	require.Less(t, ev.Silent, slack)
	AskUnlessFresh(p.fd, 0, &ev)
	require.Equal(t, verdict.Unread, ev.Found)

	p = connect(t, "unix") // the age is not known
	write(t, p.far, 1)
	AskUnlessFresh(p.fd, time.Hour, &ev)
	require.Equal(t, verdict.Unread, ev.Found)
}

func TestAskFindsAReset(t *testing.T) {
	p := connect(t, "tcp")
	require.NoError(t, p.far.(*net.TCPConn).SetLinger(0))
	require.NoError(t, p.far.Close())
	p.eventually(t, "the reset arrives", found(verdict.Ended))
	require.Equal(t, verdict.Ended, ask(-1).Found, "no descriptor")

	p = connect(t, "tcp")
	write(t, p.far, 1)
	p.eventually(t, "the byte arrives", found(verdict.Unread))
	require.NoError(t, p.far.(*net.TCPConn).SetLinger(0))
	require.NoError(t, p.far.Close())
	p.eventually(t, "the reset arrives after the byte", found(verdict.Ended))
	_, err := p.near.Write([]byte("ping"))
	require.Error(t, err)
	ev := ask(p.fd)
	require.Equal(t, verdict.Ended, ev.Found, "the server has met the error")
	require.True(t, ev.HalfEnded)
	require.EqualValues(t, 1, ev.Received)
}

// TestAskFindsTheEndOfOneSide ends the sides in both orders. Bytes that came before wait.
func TestAskFindsTheEndOfOneSide(t *testing.T) {
	p := connect(t, "tcp")
	require.NoError(t, p.far.(*net.TCPConn).CloseWrite())
	ev := p.eventually(t, "the peer has ended", func(ev verdict.Evidence) bool { return ev.HalfEnded })
	require.Zero(t, ev.Received, "a FIN is no byte")

	p = connect(t, "tcp")
	require.NoError(t, p.near.(*net.TCPConn).CloseWrite())
	write(t, p.far, 1)
	require.False(t, ask(p.fd).HalfEnded)
	require.NoError(t, p.far.(*net.TCPConn).CloseWrite())
	ev = p.eventually(t, "both have ended", func(ev verdict.Evidence) bool { return ev.HalfEnded })
	require.Equal(t, verdict.Unread, ev.Found, "the server may still read them")
	require.EqualValues(t, 1, ev.Received)

	p = connect(t, "tcp")
	require.NoError(t, p.far.(*net.TCPConn).CloseWrite())
	p.eventually(t, "the peer has ended", func(ev verdict.Evidence) bool { return ev.HalfEnded })
	require.NoError(t, p.near.SetWriteDeadline(time.Now().Add(time.Second)))
	_, err := p.near.Write(make([]byte, 64<<20))
	require.Error(t, err, "the output waits")
	require.NoError(t, p.near.(*net.TCPConn).CloseWrite())
	ev = ask(p.fd)
	require.True(t, ev.HalfEnded)
	require.Zero(t, ev.Received)
}

// TestAskForgetsTheLastAnswer reuses one Evidence, as a loop does for all its connections.
func TestAskForgetsTheLastAnswer(t *testing.T) {
	p := connect(t, "unix")
	full := verdict.Evidence{
		Found: verdict.Unread, Dated: true, Step: 1, Silent: 1, Quiet: 1, Moved: 1, InFlight: true, Resent: true, Counted: true,
		Unsent: 1, Received: 1, Acked: 1, Queued: 1,
	}
	ev := full
	Ask(p.fd, &ev)
	require.Equal(t, verdict.Evidence{}, ev, "a unix socket reports only that nothing is queued")
	ev = full
	Ask(-1, &ev)
	require.Equal(t, verdict.Evidence{Found: verdict.Ended, Queued: -1}, ev)
}

// TestMovedChangesWithBytesThatAreSent checks Moved while the peer acknowledges bytes, while it
// does not read, and after it reads again.
func TestMovedChangesWithBytesThatAreSent(t *testing.T) {
	p := connect(t, "tcp")
	before := p.eventually(t, "the handshake is over", func(ev verdict.Evidence) bool { return !ev.InFlight })
	require.True(t, before.Counted, "nothing was sent yet")
	require.Zero(t, before.Queued)
	require.False(t, HoldsOutput(p.fd))
	require.Equal(t, before.Moved, ask(p.fd).Moved, "nothing moves")

	write(t, p.near, 100)
	after := p.eventually(t, "the bytes are acknowledged", func(ev verdict.Evidence) bool { return ev.Acked >= before.Acked+100 })
	require.NotEqual(t, before.Moved, after.Moved)
	require.True(t, after.Counted || after.Moved == before.Moved+100)
	require.Less(t, after.Quiet, slack)
	require.Zero(t, after.Queued)
	if !after.Counted {
		t.Skip("this kernel is older than 4.19 and does not count sent bytes")
	}
	require.Equal(t, before.Moved+200, after.Moved, "sent, and acknowledged")

	// The peer stops reading: its window closes, and the rest waits in the kernel.
	full := p.eventually(t, "output waits", func(ev verdict.Evidence) bool {
		if ev.Queued == 0 { // on a busy machine the deadline may pass before the first byte
			_ = p.near.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			_, _ = p.near.Write(make([]byte, 64<<20))
		}
		return ev.Unsent > 0 && !ev.InFlight
	})
	require.Equal(t, full.Unsent, full.Queued, "nothing is in flight")
	require.True(t, HoldsOutput(p.fd))
	require.Equal(t, full.Moved, ask(p.fd).Moved)
	require.NoError(t, p.far.(*net.TCPConn).SetReadBuffer(4<<20))
	go func() {
		b := make([]byte, 1<<20)
		for {
			if _, err := p.far.Read(b); err != nil {
				return
			}
		}
	}()
	p.eventually(t, "the peer reads the output", func(ev verdict.Evidence) bool { return ev.Moved != full.Moved && ev.Queued == 0 })
}

func TestAskCountsTheOutputOfUnixSockets(t *testing.T) {
	p := connect(t, "unix")
	write(t, p.near, 1000)
	queued := ask(p.fd).Queued
	require.GreaterOrEqual(t, queued, 1000)
	require.True(t, HoldsOutput(p.fd))
	require.Less(t, queued, 1<<16)
	_, err := p.far.Read(make([]byte, 1000))
	require.NoError(t, err)
	require.Zero(t, ask(p.fd).Queued)
	require.False(t, HoldsOutput(p.fd))
	require.True(t, HoldsOutput(-1), "the query fails")
}

// TestIncompleteAnswers has answers of a kernel before 4.1, with a shorter structure, and of
// gVisor, which succeeds and leaves most fields zero.
func TestIncompleteAnswers(t *testing.T) {
	var info unix.TCPInfo
	all := unsafe.Sizeof(info)
	received := unsafe.Offsetof(info.Bytes_received) + unsafe.Sizeof(info.Bytes_received)
	require.False(t, complete(&info, all), "gVisor")
	info.Rcv_mss = 536
	require.True(t, complete(&info, all))
	require.True(t, complete(&info, received), "Linux 4.1")
	require.False(t, complete(&info, received-1))
	require.False(t, complete(&info, unsafe.Offsetof(info.Bytes_acked)), "Linux 3.15")
	require.False(t, complete(&info, 0))
}

func TestTheStepIsOneTickOfTheKernelAndAMillisecond(t *testing.T) {
	require.GreaterOrEqual(t, step, 2*time.Millisecond)
	require.LessOrEqual(t, step, CoarsestStep)
}

func TestAskAllocatesNothing(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		p := connect(t, network)
		ev := &verdict.Evidence{}
		require.Zero(t, testing.AllocsPerRun(100, func() { Ask(p.fd, ev) }), "%s, nothing waits", network)
		require.Zero(t, testing.AllocsPerRun(100, func() { HoldsOutput(p.fd) }), network)
		write(t, p.far, 1)
		p.eventually(t, "the byte arrives", found(verdict.Unread))
		require.Zero(t, testing.AllocsPerRun(100, func() { Ask(p.fd, ev) }), "%s, a byte waits", network)
		require.NoError(t, p.far.Close())
		_, err := p.near.Read(make([]byte, 1))
		require.NoError(t, err)
		p.eventually(t, "the end arrives", found(verdict.Ended))
		require.Zero(t, testing.AllocsPerRun(100, func() { Ask(p.fd, ev) }), "%s, the end", network)
	}
}

func BenchmarkHoldsOutput(b *testing.B) {
	p := connect(b, "tcp")
	for b.Loop() {
		HoldsOutput(p.fd)
	}
}

// TestEarlySegments loses a long segment until the network is mended. A short one comes earlier.
func TestEarlySegments(t *testing.T) {
	wire := faultynet.New(t)
	ln := sockets.Listen(t, "tcp", wire.Host()+":0")
	far := wire.Dial(t, faultynet.PortOf(ln.Addr()))
	near, err := ln.Accept()
	require.NoError(t, err)
	defer near.Close()
	p := pair{near, far, fdOf(t, near)}
	mend := wire.LoseIf(t, "ip length > 1000", faultynet.ToServer)
	write(t, far, 1200)
	time.Sleep(100 * time.Millisecond)
	require.Zero(t, ask(p.fd).Early)
	write(t, far, 1)
	ev := p.eventually(t, "a segment comes early", func(ev verdict.Evidence) bool { return ev.Early == 1 })
	require.Equal(t, verdict.Nothing, ev.Found)
	require.Zero(t, ev.Received)
	require.GreaterOrEqual(t, ev.Silent-ev.Answered, 100*time.Millisecond-ev.Step)
	mend()
	p.eventually(t, "all bytes arrive", func(ev verdict.Evidence) bool { return ev.Received == 1201 })
	require.Zero(t, ask(p.fd).Early)
	_, err = near.Read(make([]byte, 2000))
	require.NoError(t, err)
	require.Zero(t, ask(p.fd).Early, "none of the bytes waits for others")
}
