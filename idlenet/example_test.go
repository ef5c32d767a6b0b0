package idlenet_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/reap"
)

// An HTTP server that closes connections after a minute of silence.
//
// The examples below use shorter times and three helpers. listen listens on a free port of this
// machine, echo is a server that sends back what it reads, and dial is a client.
func Example() {
	inner, err := net.Listen("tcp", ":8080")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: time.Minute, HandshakeTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir("."))}
	ln.AttachHTTP(server)
	log.Fatal(server.Serve(ln)) // or server.ServeTLS(ln, "cert.pem", "key.pem")
}

func listen(cfg idlenet.Config) *idlenet.Listener {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := idlenet.Listen(inner, cfg)
	if err != nil {
		log.Fatal(err)
	}
	return ln
}

func echo(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

func dial(ln net.Listener) net.Conn {
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// A silent connection ends. The Read of the server fails as after SetReadDeadline.
func ExampleListen() {
	ln := listen(idlenet.Config{ReadTimeout: 200 * time.Millisecond})
	defer ln.Close()
	defer dial(ln).Close() // a client that sends nothing

	c, err := ln.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded))
	fmt.Println(errors.Is(ln.Reason(c), reap.ReadIdle))
	// Output:
	// true
	// true
}

// A server with TLS and HTTP/2. A request that takes longer than ReadTimeout is not cut off.
func ExampleListener_AttachHTTP() {
	ln := listen(idlenet.Config{ReadTimeout: 200 * time.Millisecond})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(500 * time.Millisecond)
		fmt.Fprint(w, r.Proto)
	}))
	_ = server.Listener.Close() // ln replaces it
	server.Listener = ln
	ln.AttachHTTP(server.Config)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	answer, err := server.Client().Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	fmt.Println(string(text), err)
	// Output: HTTP/2.0 <nil>
}

// A handler of net/http bounds how slowly a body may come in.
func ExampleConnOf() {
	ln := listen(idlenet.Config{MinRate: idlenet.MinRate{BytesPerSecond: 1000, Window: 300 * time.Millisecond}})
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := idlenet.ConnOf(r.Context())
			conn, _ := ln.Conn(c)
			conn.BeginMessage()
			_, err := io.Copy(io.Discard, r.Body)
			conn.EndMessage()
			fmt.Println(errors.Is(err, os.ErrDeadlineExceeded), ln.Reason(c).Reason)
		}),
	}
	ln.AttachHTTP(server)
	go server.Serve(ln)
	defer server.Close()

	client := dial(ln)
	defer client.Close()
	fmt.Fprint(client, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\na few bytes")
	_, _ = io.Copy(io.Discard, client) // until the server closes the connection
	// Output: true below min rate
}

// A server with a protocol of its own works on a request for longer than ReadTimeout.
func ExampleConn_Hold() {
	ln := listen(idlenet.Config{ReadTimeout: 200 * time.Millisecond})
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		conn, err := ln.Conn(c)
		if err != nil {
			log.Fatal(err)
		}
		for requests := bufio.NewScanner(c); requests.Scan(); {
			conn.Hold()
			time.Sleep(500 * time.Millisecond)
			fmt.Fprintln(c, "done:", requests.Text())
			conn.Release()
		}
	}()

	client := dial(ln)
	defer client.Close()
	fmt.Fprintln(client, "work")
	answer, err := io.ReadAll(client) // until the connection ends after the answer
	fmt.Println(strings.TrimSpace(string(answer)), err)
	// Output: done: work <nil>
}

// A server stops. It ends its connections bit by bit within a second.
func ExampleListener_Drain() {
	ln := listen(idlenet.Config{
		ReadTimeout: time.Minute,
		OnReap:      func(_ net.Conn, reason *idlenet.ReapError) { fmt.Println(reason) },
	})
	go echo(ln)
	client := dial(ln)
	defer client.Close()
	fmt.Fprint(client, "hello")
	if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
		log.Fatal(err)
	}

	_ = ln.Close()
	if err := ln.Drain(500*time.Millisecond, time.Second); err != nil {
		log.Fatal(err)
	}
	for ln.Connections() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	// Output: idlenet: connection reaped: drained
}

// The connection of a client is watched too: its server has fallen silent.
func ExampleReaper_Watch() {
	ln := listen(idlenet.Config{ReadTimeout: 200 * time.Millisecond})
	defer ln.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer silent.Close()

	c, err := ln.Watch(dial(silent))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded), ln.Reason(c).Reason)
	// Output: true read idle
}

// An operator ends the connection that has been silent longest.
func ExampleListener_Kick() {
	ln := listen(idlenet.Config{ReadTimeout: time.Minute})
	defer ln.Close()
	defer dial(ln).Close()
	c, err := ln.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	found, err := ln.Inspect(context.Background(), reap.Query{Limit: 1})
	if err != nil {
		log.Fatal(err)
	}
	if err := ln.Kick(context.Background(), found.Connections[0].ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ln.Reason(c).Reason)
	// Output: kicked
}

// A silent peer gets a ping, in a protocol of lines. It does not answer.
func ExampleHeartbeat() {
	ln := listen(idlenet.Config{Heartbeat: idlenet.Heartbeat{
		Interval: 200 * time.Millisecond, MaxMissed: 2,
		Ping: func(c net.Conn) { fmt.Fprintln(c, "ping") },
	}})
	defer ln.Close()
	go echo(ln)

	client := dial(ln)
	defer client.Close()
	text, err := io.ReadAll(client)
	fmt.Printf("%q %v\n", text, err)
	// Output: "ping\nping\n" <nil>
}
