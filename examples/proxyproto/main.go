// Command proxyproto is an echo server on gnet behind a proxy that sends the PROXY protocol, as
// HAProxy does with send-proxy-v2. The proxy must be the only peer that can connect, because the
// server believes each header.
//
//	go -C examples run ./proxyproto -admin 127.0.0.1:7080
//	haproxy -f examples/proxyproto/haproxy.cfg   # in another terminal
//	socat - TCP:127.0.0.1:7001                   # in a third one
//
// The log and the page at http://127.0.0.1:7080/ show the addresses of the clients instead of that
// of the proxy. A connection without a header is closed after -handshake-timeout, and a client that
// sends nothing after -read-timeout. A client has at most -max-per-source connections.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"log"
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"
	proxyproto "github.com/pires/go-proxyproto"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

type echo struct {
	gnet.BuiltinEventEngine
	reaper  *idle.Reaper
	clients *sourcelimit.Sources
}

func (e *echo) OnTraffic(c gnet.Conn) gnet.Action {
	if c.Context() == nil {
		client, err := header(c)
		if err == nil && client == nil {
			return gnet.None // the rest of the header is on its way
		}
		if err == nil {
			err = e.clients.Admit(sourcelimit.AddrOf(client))
		}
		if err != nil {
			log.Printf("%v, proxy %v: %v", client, c.RemoteAddr(), err)
			return gnet.Close
		}
		c.SetContext(client)
		conn, _ := e.reaper.Conn(c)
		conn.SetRemote(client)
		conn.Ready() // the handshake is over
	}
	message, _ := c.Next(-1)
	_, _ = c.Write(message)
	return gnet.None
}

func (e *echo) OnClose(c gnet.Conn, err error) gnet.Action {
	client, ok := c.Context().(net.Addr)
	if ok {
		e.clients.Release(sourcelimit.AddrOf(client))
	}
	log.Printf("%v, proxy %v, closed: %v", client, c.RemoteAddr(), err)
	return gnet.None
}

// header takes the header of the proxy out of the buffer, and returns the address of the client. It
// is nil while the header is incomplete.
func header(c gnet.Conn) (client net.Addr, err error) {
	b, _ := c.Peek(-1)
	n, err := headerSize(b)
	if n == 0 || err != nil {
		return nil, err
	}
	found, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b[:n]), n))
	if err != nil {
		return nil, err
	}
	_, _ = c.Discard(n)
	if found.Command.IsLocal() { // a health check of the proxy
		return c.RemoteAddr(), nil
	}
	tcp, ok := found.SourceAddr.(*net.TCPAddr)
	if !ok { // the name of a unix socket could have lines of its own for the log
		return nil, errors.New("no TCP address in the header of the PROXY protocol")
	}
	return tcp, nil
}

// headerSize returns the length of the header in b, 0 while it is incomplete.
func headerSize(b []byte) (n int, err error) {
	const maxV1, fixedV2, maxV2 = 107, 16, 4096
	switch v1, v2 := proxyproto.SIGV1, proxyproto.SIGV2; {
	case bytes.HasPrefix(b, v2) && len(b) >= fixedV2:
		n = fixedV2 + int(binary.BigEndian.Uint16(b[fixedV2-2:]))
	case bytes.HasPrefix(b, v1) && (len(b) >= maxV1 || bytes.Contains(b, []byte("\n"))):
		n = bytes.IndexByte(b, '\n') + 1
	case bytes.HasPrefix(b, v2) || bytes.HasPrefix(b, v1) || bytes.HasPrefix(v2, b) || bytes.HasPrefix(v1, b):
		return 0, nil
	}
	if n == 0 || n > maxV2 {
		return 0, errors.New("no header of the PROXY protocol")
	}
	if n > len(b) {
		return 0, nil
	}
	return n, nil
}

func main() {
	e := &echo{}
	cfg := server.Config{Addresses: []string{"127.0.0.1:7000"}, Handler: e, OnStarted: func(s *server.Server) {
		log.Printf("listening on %v and, for operators, %v", s.Addr(), s.AdminAddr())
	}}
	cfg.AddFlags(flag.CommandLine)
	limits := settings.New(flag.CommandLine, idle.Config{ReadTimeout: time.Minute, HandshakeTimeout: 10 * time.Second})
	flag.Parse()
	// The server would apply the limits to the proxy.
	clients, err := sourcelimit.New(cfg.Sources)
	if err != nil {
		log.Fatal(err)
	}
	cfg.Sources = sourcelimit.Limits{}
	e.clients = clients
	if err := limits.Load(&cfg.Idle); err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	e.reaper = srv.Reaper()
	if err := srv.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
