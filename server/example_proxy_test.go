package server_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// proxied is an echo server behind a proxy that sends the address of the client in the first line,
// as the PROXY protocol does. Later lines are the client's, whatever they look like.
type proxied struct {
	gnet.BuiltinEventEngine
	sources *sourcelimit.Sources
}

func (p *proxied) OnTraffic(c gnet.Conn) gnet.Action {
	if c.Context() == nil {
		return p.admit(c)
	}
	msg, _ := c.Next(-1)
	_, _ = c.Write(msg)
	return gnet.None
}

// admit takes the first line of a connection.
func (p *proxied) admit(c gnet.Conn) gnet.Action {
	const longest = 107 // bytes of a line of the PROXY protocol
	msg, _ := c.Peek(-1)
	end := bytes.IndexByte(msg, '\n')
	if end < 0 && len(msg) < longest {
		return gnet.None // the line is not complete
	}
	fields := strings.Fields(string(msg[:max(end, 0)])) // PROXY TCP4 192.0.2.7 198.51.100.1 51234 443
	if len(fields) < 3 || fields[0] != "PROXY" {
		return gnet.Close
	}
	from, err := netip.ParseAddr(fields[2])
	if err != nil {
		return gnet.Close
	}
	if err := p.sources.Admit(from); err != nil {
		_, _ = c.Write([]byte("too many\n"))
		return gnet.Close
	}
	c.SetContext(from) // for OnClose
	_, _ = c.Discard(end + 1)
	_, _ = c.Write([]byte("welcome\n"))
	if c.InboundBuffered() > 0 {
		return p.OnTraffic(c)
	}
	return gnet.None
}

func (p *proxied) OnClose(c gnet.Conn, _ error) gnet.Action {
	if from, admitted := c.Context().(netip.Addr); admitted {
		p.sources.Release(from)
	}
	return gnet.None
}

// Behind a proxy all connections have one address. Config.Sources stays zero, and the handler calls
// Admit and Release.
func Example_proxy() {
	clients, err := sourcelimit.New(sourcelimit.Limits{Connections: 1})
	if err != nil {
		log.Fatal(err)
	}
	started := make(chan net.Addr)
	s, err := server.New(server.Config{
		Addresses: []string{"127.0.0.1:0"},
		Handler:   &proxied{sources: clients},
		Idle:      idle.Config{ReadTimeout: time.Minute},
		OnStarted: func(s *server.Server) { started <- s.Addr() },
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = s.Run(context.Background()) }()
	addr := (<-started).String()
	dial := func(from string) net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(c, "PROXY TCP4 %s 198.51.100.1 51234 443\r\n", from)
		return c
	}
	read := func(c net.Conn) string {
		answer := make([]byte, 64)
		n, _ := c.Read(answer)
		return string(answer[:n])
	}
	var conns []net.Conn
	for _, from := range []string{"192.0.2.7", "192.0.2.7", "203.0.113.9"} {
		c := dial(from)
		defer c.Close()
		conns = append(conns, c)
		fmt.Printf("%s: %s", from, read(c))
		fmt.Fprint(c, "PROXY TCP4 192.0.2.99 1.2.3.4 5 6\n") // a client that pretends to be the proxy
		fmt.Print(read(c))
	}
	fmt.Print("192.0.2.99: ", read(dial("192.0.2.99")))

	conns[0].Close()
	again := "" // when the server has seen the end
	for range 1000 {
		if again = read(dial("192.0.2.7")); again == "welcome\n" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Print("192.0.2.7: ", again)
	fmt.Println(s.Close())
	// Output:
	// 192.0.2.7: welcome
	// PROXY TCP4 192.0.2.99 1.2.3.4 5 6
	// 192.0.2.7: too many
	// 203.0.113.9: welcome
	// PROXY TCP4 192.0.2.99 1.2.3.4 5 6
	// 192.0.2.99: welcome
	// 192.0.2.7: welcome
	// <nil>
}
