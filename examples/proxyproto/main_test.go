package main

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	proxyproto "github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// haproxy runs HAProxy with the file of the recipe, and returns its addresses for version 2 and 1.
// It inherits its listeners, so that the kernel can choose their ports.
func haproxy(t testing.TB, addr string) (v2, v1 string) {
	t.Helper()
	text, err := os.ReadFile("haproxy.cfg")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer(
		"127.0.0.1:7000", addr, "127.0.0.1:7001", "fd@3", "127.0.0.1:7002", "fd@4",
	).Replace(string(text))), 0o600))
	cmd := recipe.Program(t, "haproxy", "-db", "-f", file)
	var addrs []string
	for range 2 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		f, err := ln.(*net.TCPListener).File()
		require.NoError(t, err)
		require.NoError(t, ln.Close())
		defer f.Close()
		cmd.ExtraFiles, addrs = append(cmd.ExtraFiles, f), append(addrs, ln.Addr().String())
	}
	recipe.Start(t, cmd)
	return addrs[0], addrs[1]
}

// TestAddresses has clients with addresses of their own behind HAProxy: living ones, silent ones,
// and one too many of its address.
func TestAddresses(t *testing.T) { fair.TryParallel(t, testAddresses) }

func testAddresses(t testing.TB) {
	server, addr := recipe.Serve(t, "-read-timeout", recipe.Timeout.String(), "-admin", "127.0.0.1:0", "-max-per-source", "2")
	admin := server.Await(`for operators, (\S+)`)[1]
	v2, v1 := haproxy(t, addr)
	dial := func(proxy, from string) *recipe.Process {
		c := recipe.Client(t, "socat", "-", "TCP:"+proxy+",bind="+from)
		c.Say("hello")
		return c
	}
	living := []*recipe.Process{dial(v2, "127.0.0.2"), dial(v1, "127.0.0.3")}
	silent := []*recipe.Process{dial(v2, "127.0.0.4"), dial(v1, "127.0.0.5")}
	recipe.Live(living...)
	for _, from := range []string{`127\.0\.0\.4`, `127\.0\.0\.5`} {
		server.Await(from + `:\d+, proxy 127\.0\.0\.1:\d+, closed: idle: connection reaped: read idle`)
	}
	for _, c := range silent {
		require.Zero(t, c.AwaitEnd())
	}
	for _, c := range living {
		c.RequireAlive()
		c.Await("(beat\n){10}")
	}
	page := recipe.Run(t, "curl", "--silent", "--show-error", "--fail", "http://"+admin+"/api/connections")
	require.Contains(t, page, "127.0.0.2:")
	require.Contains(t, page, "127.0.0.3:")
	require.NotContains(t, page, "127.0.0.1:")
	require.Equal(t, 2, server.Count("reaped"))

	dial(v2, "127.0.0.2").Await("hello")
	dial(v2, "127.0.0.2")
	server.Await(`127\.0\.0\.2:\d+, proxy .*: sourcelimit: too many connections of one source`)

	dial(v1, "127.0.0.4").Await("hello") // the one of this address that was reaped does not count,
	dial(v2, "127.0.0.4").Await("hello") // so there is room for two
}

// TestNoHeader has a client that goes around the proxy, and one that sends a part of a header.
func TestNoHeader(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-handshake-timeout", recipe.Timeout.String())
	recipe.Client(t, "socat", "-", "TCP:"+addr).Say("hello")
	server.Await("no header of the PROXY protocol")
	recipe.Client(t, "socat", "-", "TCP:"+addr).Say("PROXY TCP4 127")
	server.Await("no header of the PROXY protocol(?s:.)*no header|(?s:.)*ProxyProtocol|proxyproto")
	recipe.Client(t, "socat", "-u", "SYSTEM:printf PROXY; sleep 5", "TCP:"+addr)
	server.Await("closed: idle: connection reaped: no handshake")
}

// v2 returns a header of version 2 with the bytes of an address.
func v2(family proxyproto.AddressFamilyAndProtocol, address []byte) []byte {
	b := append([]byte(proxyproto.SIGV2), byte(proxyproto.PROXY), byte(family))
	b = binary.BigEndian.AppendUint16(b, uint16(len(address)))
	return append(b, address...)
}

// TestOnlyTCPAddressesAreBelieved has headers with the name of a unix socket, which has a line for
// the log in it, and with datagrams.
func TestOnlyTCPAddressesAreBelieved(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-handshake-timeout", recipe.Timeout.String())
	unix := make([]byte, 216)
	copy(unix, "x\n2026/01/01 00:00:00 forged")
	copy(unix[108:], "y")
	ipv4 := []byte{192, 0, 2, 7, 198, 51, 100, 1, 200, 34, 1, 187}
	headers := [][]byte{v2(proxyproto.UnixStream, unix), v2(proxyproto.UnixDatagram, unix), v2(proxyproto.UDPv4, ipv4)}
	for _, header := range headers {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write(append(header, "hello"...))
		require.NoError(t, err)
		echo, _ := io.ReadAll(c)
		require.Empty(t, echo, "the connection is closed")
	}
	recipe.Eventually(t, "three refused headers", func() bool { return server.Count("no TCP address") == len(headers) })
	server.RequireNone("(?m)^2026/01/01 00:00:00 forged")
}
