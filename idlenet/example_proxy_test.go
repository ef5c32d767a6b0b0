package idlenet_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// proxied is an echo server behind a proxy that sends the address of the client in the first line,
// as the PROXY protocol does. Later lines are the client's, whatever they look like.
type proxied struct {
	ln      *idlenet.Listener
	clients *sourcelimit.Sources
}

// header reads the address of the client: PROXY TCP4 192.0.2.7 198.51.100.1 51234 443.
func header(r *bufio.Reader) (*net.TCPAddr, error) {
	line, err := r.ReadSlice('\n') // at most the size of r
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(line))
	if len(fields) != 6 || fields[0] != "PROXY" {
		return nil, fmt.Errorf("no header: %q", line)
	}
	from, err := netip.ParseAddrPort(net.JoinHostPort(fields[2], fields[4]))
	return net.TCPAddrFromAddrPort(from), err
}

// serve reads one header, and leaves the rest to the echo.
func (p *proxied) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 107) // the longest header
	client, err := header(r)
	if err != nil {
		return
	}
	if err := p.clients.Admit(sourcelimit.AddrOf(client)); err != nil {
		_, _ = io.WriteString(c, "too many\n")
		return
	}
	defer p.clients.Release(sourcelimit.AddrOf(client))
	if conn, err := p.ln.Conn(c); err == nil {
		conn.SetRemote(client) // for logs and the page
		conn.Ready()
	}
	_, _ = io.WriteString(c, "welcome\n")
	_, _ = io.Copy(c, r)
}

// run serves connections until the Listener is closed.
func (p *proxied) run() {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		serving.Go(func() { p.serve(c) })
	}
}

// Behind a proxy all connections have one address. Config.Sources stays zero, and the server calls
// Admit and Release.
func Example_proxy() {
	clients, err := sourcelimit.New(sourcelimit.Limits{Connections: 1})
	if err != nil {
		log.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: time.Minute, HandshakeTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go((&proxied{ln, clients}).run)

	visit := func(from, say string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(c, "PROXY TCP4 %s 198.51.100.1 51234 443\r\n%s", from, say)
		lines := bufio.NewReader(c)
		line, _ := lines.ReadString('\n')
		fmt.Printf("%s: %s", from, line)
		if say != "" {
			line, _ = lines.ReadString('\n')
			fmt.Print(line)
		}
		return c
	}
	// The first client pretends to be the proxy.
	for _, c := range []net.Conn{
		visit("192.0.2.7", "PROXY TCP4 192.0.2.99 1.2.3.4 5 6\n"), visit("192.0.2.7", ""), visit("192.0.2.99", ""),
	} {
		c.Close()
	}
	ln.Close()
	running.Wait()
	// Output:
	// 192.0.2.7: welcome
	// PROXY TCP4 192.0.2.99 1.2.3.4 5 6
	// 192.0.2.7: too many
	// 192.0.2.99: welcome
}
