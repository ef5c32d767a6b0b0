// Command tls is an echo server with TLS, on gnet.
//
//	go -C examples run ./tls
//	openssl s_client -quiet -connect 127.0.0.1:8443   # in another terminal
//
// The server makes a certificate of its own. A client that does not end the TLS handshake is closed
// after -handshake-timeout, and one that sends nothing after -read-timeout. It gets the TLS message
// that ends a connection.
//
// gnet has no TLS, and crypto/tls blocks. So a connection has a goroutine during its handshake, and
// none later: a tls.Conn can be read again after a read deadline, so a wire without bytes answers a
// read with os.ErrDeadlineExceeded. Handshakes need CPU: -accept-rate bounds them. A server on
// package net has an easier way: tls.NewListener around an idlenet.Listener.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"log"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

type echo struct {
	gnet.BuiltinEventEngine
	reaper *idle.Reaper
	config *tls.Config
}

func (e *echo) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	w := newWire(c)
	w.tls = tls.Server(w, e.config)
	c.SetContext(w)
	remote := c.RemoteAddr() // gnet clears it when the connection closes
	go func() {
		if err := w.tls.Handshake(); err != nil {
			log.Printf("%v: %v", remote, err)
			_ = c.Close()
			return
		}
		// The loop goroutine takes over when it has written all bytes of the handshake. OnTraffic
		// decrypts bytes that have come meanwhile.
		_ = c.AsyncWrite(nil, func(c gnet.Conn, _ error) error {
			w.endHandshake()
			return c.Wake(nil)
		})
	}()
	return nil, gnet.None
}

func (e *echo) OnTraffic(c gnet.Conn) gnet.Action {
	w := c.Context().(*wire)
	received, _ := c.Next(-1)
	if !w.feed(received) {
		return gnet.Close // a client may not send without end before the handshake is over
	}
	if !w.isReady() {
		return gnet.None
	}
	conn, _ := e.reaper.Conn(c)
	conn.Ready()
	for text := make([]byte, 16<<10); ; {
		n, err := w.tls.Read(text)
		if n > 0 {
			_, err = w.tls.Write(text[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return gnet.None
		} else if err != nil { // io.EOF: the client says that it closes
			return gnet.Close
		}
	}
}

func (e *echo) OnClose(c gnet.Conn, err error) gnet.Action {
	c.Context().(*wire).end()
	log.Printf("%v closed: %v", c.RemoteAddr(), err)
	return gnet.None
}

// goodbye sends the TLS message that ends a connection.
func goodbye(c gnet.Conn, _ *idle.ReapError) []byte {
	if w := c.Context().(*wire); w.isReady() {
		_ = w.tls.CloseWrite()
	}
	return nil
}

// selfSigned returns a certificate for 127.0.0.1.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func main() {
	certificate, err := selfSigned() // or tls.LoadX509KeyPair
	if err != nil {
		log.Fatal(err)
	}
	e := &echo{config: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	cfg := server.Config{Addresses: []string{"127.0.0.1:8443"}, Handler: e, OnStarted: func(s *server.Server) {
		log.Printf("listening on %v", s.Addr())
	}}
	cfg.AddFlags(flag.CommandLine)
	limits := settings.New(flag.CommandLine, idle.Config{ReadTimeout: time.Minute, HandshakeTimeout: 10 * time.Second})
	flag.Parse()
	cfg.Idle.Goodbye = goodbye
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
