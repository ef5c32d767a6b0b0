package path

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/loadtest/internal/testserver"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "10") // the tests mostly sleep
	goleak.VerifyTestMain(m)
}

// limit is how long the device on the path keeps an idle connection.
const limit = 3 * time.Second

// late is how late a busy machine may notice an echo. The silence of the client begins there.
const late = 400 * time.Millisecond

// quick is a search that takes a few seconds.
func quick(target string) Config {
	return Config{
		Target: target, From: 500 * time.Millisecond, To: 8 * time.Second, Parallel: 3,
		Precision: 300 * time.Millisecond, Patience: 1500 * time.Millisecond, Progress: io.Discard,
	}
}

func find(t testing.TB, c Config) *Report {
	t.Helper()
	r, err := Find(t.Context(), c)
	require.NoError(t, err)
	var b strings.Builder
	r.Write(&b)
	t.Logf("%s", b.String())
	return r
}

// TestFirewallThatForgets has a firewall in front of the server, with a table of connections.
func TestFirewallThatForgets(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action string
		how    Outcome
	}{
		"drops":  {"drop", Dropped},
		"resets": {"reject with tcp reset", Reset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := find(t, quick(behindFirewall(t, test.action)))
			require.Equal(t, test.how, r.How)
			require.False(t, r.Server)
			require.LessOrEqual(t, r.Survived, limit)
			require.GreaterOrEqual(t, r.Failed, limit-late)
			require.LessOrEqual(t, r.Failed-r.Survived, 300*time.Millisecond)
			require.Equal(t, r.Survived/2, r.Heartbeat)
			require.Empty(t, r.Notes)
		})
	}
}

// behindFirewall runs an echo server in a network namespace that forgets idle connections. action
// is what it does with packets of unknown ones.
func behindFirewall(t *testing.T, action string) (addr string) {
	t.Helper()
	c := faultynet.New(t)
	var ln net.Listener
	var err error
	c.Inside(t, func() {
		for name, value := range map[string]string{"loose": "0", "timeout_established": fmt.Sprint(int(limit.Seconds()))} {
			err = errors.Join(err, os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_"+name, []byte(value), 0o644))
		}
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader("table inet firewall { chain in { type filter hook input priority 0; ct state invalid " + action + "\n}\n}\n")
		out, e := nft.CombinedOutput()
		if err = errors.Join(err, e); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
			return
		}
		far, e := net.InterfaceByName("far")
		if err = e; err == nil {
			var addrs []net.Addr
			addrs, err = far.Addrs()
			addr = addrs[0].(*net.IPNet).IP.String() + ":0"
		}
		if err == nil {
			ln, err = net.Listen("tcp4", addr)
		}
	})
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("connection tracking is needed:", err)
	}
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(t.Context(), func() { _ = conn.Close() })() // no FIN gets through
				testserver.Echo(conn)
			})
		}
	})
	return ln.Addr().String()
}

// TestServerThatEndsIsNotThePath has a server that closes or resets idle connections. A reset may
// also come from a device on the path.
func TestServerThatEndsIsNotThePath(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		goodbye   string
		linger    int // 0 resets the connection
		how       Outcome
		server    bool
		heartbeat time.Duration
	}{
		"closes without a word": {"", -1, ClosedInTime, true, 2 * time.Second / 3},
		"closes with a goodbye": {"bye\n", -1, ClosedInTime, true, 2 * time.Second / 3},
		"resets":                {"", 0, ResetInTime, false, limit / 2},
	} {
		fair.RunParallel(t, name, func(t testing.TB) {
			r := find(t, quick(testserver.Serve(t, func(c net.Conn) {
				testserver.Reap(limit, test.goodbye)(c)
				_ = c.(*net.TCPConn).SetLinger(test.linger)
			})))
			require.Equal(t, test.how, r.How)
			require.Equal(t, test.server, r.Server)
			require.True(t, r.Survived == 2*time.Second || !test.server, r.Survived)
			require.InDelta(t, limit, r.Failed, float64(late))
			require.InDelta(t, test.heartbeat, r.Heartbeat, float64(late))
		})
	}
}

func TestPathWithoutLimit(t *testing.T) {
	t.Parallel()
	c := quick(testserver.Serve(t, testserver.Echo))
	c.To = 2 * time.Second
	r := find(t, c)
	require.Equal(t, 2*time.Second, r.Survived)
	require.Zero(t, r.Failed)
	require.Equal(t, time.Second, r.Heartbeat)
	require.Len(t, r.Tries, 3)
}

// TestNoSilenceSurvives has a server that answers once.
func TestNoSilenceSurvives(t *testing.T) {
	t.Parallel()
	r := find(t, quick(testserver.Serve(t, func(c net.Conn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, line)
		testserver.Discard(c)
	})))
	require.Equal(t, Dropped, r.How)
	require.Zero(t, r.Survived)
	require.Zero(t, r.Heartbeat)
	require.LessOrEqual(t, r.Failed, 300*time.Millisecond)
	require.Len(t, r.Notes, 1)
}

func TestTargetMustEcho(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		target string
		want   string
	}{
		"nothing listens": {"127.0.0.1:1", "connection refused"},
		"other answer":    {testserver.Serve(t, testserver.Leave(time.Hour, "220 hello\n")), "does not echo a line: another line arrived"},
		"no answer":       {testserver.Serve(t, testserver.Discard), "does not echo a line"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Find(t.Context(), quick(test.target))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestInterruptedSearchTellsWhatItKnows(t *testing.T) { fair.TryParallel(t, testInterrupted) }

func testInterrupted(t testing.TB) {
	ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer stop()
	began := time.Now()
	r, err := Find(ctx, quick(testserver.Serve(t, testserver.Echo)))
	require.NoError(t, err)
	require.True(t, r.Interrupted)
	require.Equal(t, time.Second, r.Survived)
	require.Zero(t, r.Failed)
	require.Less(t, time.Since(began), 3*time.Second)
}
