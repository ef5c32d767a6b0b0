package server

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/server/internal/accept"
)

// listenTCP listens as gnet does: the listeners of package net use MPTCP, which has no filters.
func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	var cfg net.ListenConfig
	cfg.SetMultipathTCP(false)
	ln, err := cfg.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

// newTestPauser returns a Pauser that has found a listener.
func newTestPauser(t *testing.T, ln net.Listener, hasRoom func() bool) *accept.Pauser {
	t.Helper()
	p := accept.NewPauser(accept.Config{
		Addrs: []net.Addr{ln.Addr()}, Listeners: 1, Logger: slog.New(slog.DiscardHandler), HasRoom: hasRoom, Pauses: new(atomic.Uint64),
	})
	t.Cleanup(func() {
		p.Stop()
		p.Forget()
	})
	require.True(t, p.Find(true))
	return p
}

// A newConn is a connection as OnOpen sees it.
type newConn struct {
	gnet.Conn
	fd int
}

func (c *newConn) Fd() int        { return c.fd }
func (*newConn) SetContext(_ any) {}

// attachDropAll attaches a filter that drops every packet.
func attachDropAll(fd int) error {
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)})
}

// TestAConnectionLosesTheFilterOfItsListener gives a connection the filter of a listener, as the
// kernel does if it is made at the moment of a pause.
func TestAConnectionLosesTheFilterOfItsListener(t *testing.T) {
	ln := listenTCP(t)
	client, err := net.Dial("tcp4", ln.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	conn, err := ln.Accept()
	require.NoError(t, err)
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { err = attachDropAll(int(fd)) }))
	if errors.Is(err, unix.EPERM) {
		t.Skip("without CAP_NET_ADMIN there are no filters")
	}
	require.NoError(t, err)
	_, err = client.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = conn.Read(make([]byte, 5))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the filter drops all packets")

	h := &engineHandler{full: 1, log: slog.New(slog.DiscardHandler), admission: &admission{}}
	h.pauser = newTestPauser(t, ln, func() bool { return false })
	h.pauser.Pause("the test asks for it", func() {})
	require.NoError(t, raw.Control(func(fd uintptr) { h.OnOpen(&newConn{fd: int(fd)}) }))
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = conn.Read(make([]byte, 5))
	require.NoError(t, err, "the client sends again what was dropped")
	require.EqualValues(t, 1, h.admission.rejected[noDescriptors].Load())
}
