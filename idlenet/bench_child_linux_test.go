package idlenet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childEnv selects what the test binary does as a child process of a benchmark: "clients ADDRESS",
// or "http SUBJECT".
const childEnv = "IDLEWHEEL_BENCHMARK_CHILD"

func init() {
	role, argument, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		return
	}
	var err error
	switch role {
	case "clients":
		err = runClients(argument)
	case "http":
		err = runHTTP(argument)
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A child is a child process. It ends when its standard input is closed.
type child struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func startChild(b *testing.B, role string) *child {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+role), os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	return &child{cmd, in, bufio.NewScanner(out)}
}

// line returns the next line of the standard output.
func (c *child) line(b *testing.B) string {
	require.True(b, c.out.Scan(), "the child process writes a line")
	return c.out.Text()
}

// end ends the process and returns the rest of its standard output.
func (c *child) end(b *testing.B) (rest []string) {
	require.NoError(b, c.in.Close())
	for c.out.Scan() {
		rest = append(rest, c.out.Text())
	}
	require.NoError(b, c.cmd.Wait())
	return rest
}

// parentEnds returns a channel that is closed with the standard input.
func parentEnds() <-chan struct{} {
	ends := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ends)
	}()
	return ends
}

const (
	massDead   = 15000
	massLiving = 100
)

// runClients dials the clients of BenchmarkMassExpiry. The silent ones send one byte. It writes the
// time after that, and in the end the time and the duration of each echo of a living one, in
// nanoseconds.
func runClients(addr string) error {
	ends := parentEnds()
	var conns []net.Conn
	for i := range massLiving + massDead {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i%4))}} // ports are few
		c, err := d.Dial("tcp", addr)
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	one := make([]byte, 1)
	for _, c := range conns[massLiving:] {
		if _, err := c.Write(one); err != nil {
			return err
		}
	}
	fmt.Println(time.Now().UnixNano())
	var echoes []string
	for i := 0; ; i++ {
		select {
		case <-ends:
			fmt.Println(strings.Join(echoes, "\n"))
			return nil
		case <-time.After(time.Millisecond):
		}
		at, c := time.Now(), conns[i%massLiving]
		if _, err := c.Write(one); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, one); err != nil {
			return err
		}
		echoes = append(echoes, fmt.Sprint(at.UnixNano(), time.Since(at).Nanoseconds()))
	}
}

// runHTTP serves a subject of BenchmarkHTTPStall, and writes its address.
func runHTTP(name string) error {
	ends := parentEnds()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ln, server, err := newHTTP(name, inner, httpStallTimeout)
	if err != nil {
		return err
	}
	fmt.Println(inner.Addr())
	go func() {
		<-ends
		_ = server.Close()
	}()
	if err := server.Serve(ln); err != http.ErrServerClosed {
		return err
	}
	return nil
}
