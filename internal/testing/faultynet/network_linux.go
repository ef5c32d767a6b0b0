package faultynet

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

// A Cable connects this host with a network namespace of its own until the test ends. Servers
// listen at its near end. Clients are in the namespace at its far end.
type Cable struct {
	space    string // the network namespace
	far      string // the interface in it
	near     string // the interface of this host; the one in the namespace is called far
	host     string // the address of this host
	prefix   string // the two addresses without their last byte, as a.b.c
	lastByte int    // of host; the far end has the next one
}

// cables counts the cables of this process.
var cables atomic.Int64

// A Way is a direction of the packets on a cable.
type Way string

const (
	ToServer Way = "to the server"
	ToClient Way = "to the client"
)

// needTool skips a test that needs a command, or fails it in CI, where all commands are installed.
func needTool(t testing.TB, name, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		skipOrFail(t, "the test needs the %s command: install %s", name, debianPackage)
	}
}

// skipOrFail skips a test that cannot run here, or fails it in CI.
func skipOrFail(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// New needs root and the ip command; without them the test is skipped. Names and addresses
// differ between the cables of a process, and between processes.
func New(t testing.TB) *Cable {
	t.Helper()
	if os.Geteuid() != 0 {
		skipOrFail(t, "a network namespace needs root")
	}
	needTool(t, "ip", "iproute2")
	c := newCable("far")
	c.space = "idlewheel" + c.near[len("iw"):]
	if err := ip("netns", "add", c.space); err != nil {
		skipOrFail(t, "no network namespace can be made here: %v", err)
	}
	t.Cleanup(func() { _ = ip("netns", "delete", c.space) })
	c.lay(t)
	return c
}

// AddPath connects the namespace by one more cable, by which clients of Multipath TCP reach the
// address of the first one as well.
func (c *Cable) AddPath(t testing.TB) *Cable {
	t.Helper()
	p := newCable("far2")
	p.space = c.space
	p.lay(t)
	const table = "2"
	for _, args := range [][]string{
		{"rule", "add", "from", p.farHost(), "lookup", table},
		{"route", "add", "default", "via", p.host, "dev", p.far, "table", table},
		{"mptcp", "limits", "set", "subflow", "2"},
		{"mptcp", "endpoint", "add", p.farHost(), "dev", p.far, "subflow"},
	} {
		require.NoError(t, ip(append([]string{"-n", c.space}, args...)...))
	}
	return p
}

// newCable returns a Cable with names and addresses that no other one has.
func newCable(far string) *Cable {
	id := int64(os.Getpid())*16 + cables.Add(1)
	net30 := id % (1 << 20) * 4 // of 10.192.0.0/10
	c := &Cable{
		far: far, near: fmt.Sprintf("iw%d", id%1e9),
		prefix:   fmt.Sprintf("10.%d.%d", 192+net30>>16, net30>>8&255),
		lastByte: int(net30&255) + 1,
	}
	c.host = fmt.Sprintf("%s.%d", c.prefix, c.lastByte)
	return c
}

// farHost returns the address of the far end.
func (c *Cable) farHost() string { return fmt.Sprintf("%s.%d", c.prefix, c.lastByte+1) }

// lay connects this host with the namespace.
func (c *Cable) lay(t testing.TB) {
	t.Helper()
	require.NoError(t, ip("link", "add", c.near, "type", "veth", "peer", "name", c.far, "netns", c.space))
	t.Cleanup(func() { _ = ip("link", "delete", c.near) })
	require.NoError(t, ip("addr", "add", c.host+"/30", "dev", c.near))
	require.NoError(t, ip("link", "set", c.near, "up"))
	require.NoError(t, ip("-n", c.space, "addr", "add", c.farHost()+"/30", "dev", c.far))
	require.NoError(t, ip("-n", c.space, "link", "set", c.far, "up"))
}

// ip runs the ip command.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

// Host returns the address of this host, and Near its interface.

func (c *Cable) Host() string { return c.host }
func (c *Cable) Near() string { return c.near }

// Inside calls a function on a thread that is in the network namespace.
func (c *Cable) Inside(t testing.TB, do func()) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go func() { // the thread ends with the goroutine, because it stays locked
		defer close(done)
		runtime.LockOSThread()
		var f *os.File
		if f, err = os.Open("/run/netns/" + c.space); err != nil {
			return
		}
		err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		f.Close()
		if err == nil {
			do()
		}
	}()
	<-done
	require.NoError(t, err)
	if t.Failed() {
		t.FailNow() // the function has failed inside
	}
}

// Dial connects from the far end.
func (c *Cable) Dial(t testing.TB, port int) (conn net.Conn) {
	t.Helper()
	return c.DialBy(t, &net.Dialer{}, port)
}

// DialBy connects from the far end by a Dialer.
func (c *Cable) DialBy(t testing.TB, dialer *net.Dialer, port int) (conn net.Conn) {
	t.Helper()
	var err error
	c.Inside(t, func() { conn, err = dialer.Dial("tcp4", net.JoinHostPort(c.host, strconv.Itoa(port))) })
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// PortOf returns the port of a TCP address.
func PortOf(addr net.Addr) int { return addr.(*net.TCPAddr).Port }

// Lose makes the network lose all packets of the given ways until mend is called, which mends the
// last way first. The sender of a packet does not notice: the packet is dropped on arrival.
func (c *Cable) Lose(t testing.TB, ways ...Way) (mend func()) {
	return c.LoseIf(t, "ether type ip", ways...)
}

// prompt is the longest time of a command that may change what a test plans.
const prompt = 200 * time.Millisecond

// LoseIf is Lose for the packets that match an expression of nft.
func (c *Cable) LoseIf(t testing.TB, matches string, ways ...Way) (mend func()) {
	t.Helper()
	needTool(t, "nft", "nftables")
	var mends []func() error
	for _, w := range ways {
		dev, nft := c.near, []string{"nft"}
		if w == ToClient {
			dev, nft = c.far, []string{"ip", "netns", "exec", c.space, "nft"}
		}
		table := "netdev " + c.near
		run := func(rules string) error {
			cmd := exec.Command(nft[0], append(nft[1:], "-f", "-")...)
			cmd.Stdin = strings.NewReader(rules)
			began := time.Now()
			out, err := cmd.CombinedOutput()
			if took := time.Since(began); took > prompt {
				fair.Excuse(t, "nft took %v", took)
			}
			if err != nil {
				return fmt.Errorf("nft: losing packets %s: %w: %s", w, err, out)
			}
			return nil
		}
		require.NoError(t, run(fmt.Sprintf("table %s { chain lost {\n"+
			"type filter hook ingress device \"%s\" priority 0;\n%s drop\n}\n}\n", table, dev, matches)))
		mends = append(mends, func() error { return run("delete table " + table) })
	}
	mended := false
	mend = func() {
		if mended {
			return
		}
		mended = true
		for _, m := range slices.Backward(mends) {
			if err := m(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(mend)
	return mend
}
