package idle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// Only a pong shows that the peer is alive, and only the handler can tell a pong from other
// messages.
func ExampleConn_Alive() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{Heartbeat: idle.Heartbeat{
		Interval: 100 * time.Millisecond, Retry: time.Minute,
		Ping:   func(gnet.Conn) []byte { return []byte("PING\n") },
		IsPong: func(gnet.Conn) bool { return false }, // the handler calls Alive
	}})
	if err != nil {
		log.Fatal(err)
	}
	h.traffic = func(c gnet.Conn, msg string) gnet.Action {
		if msg == "PONG\n" {
			conn, watched := reaper.Conn(c)
			conn.Alive()
			fmt.Println("watched:", watched)
		}
		return gnet.Close
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	fmt.Print(read(c, "PING\n"))
	fmt.Fprint(c, "PONG\n")
	<-h.closed
	// Output:
	// PING
	// watched: true
}

// A gateway for devices that negotiate their keep-alive time in the first message, as MQTT does.
func ExampleConn_SetTimeouts() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{
		HandshakeTimeout: 10 * time.Second, // until Conn.Ready
		ReadTimeout:      time.Minute,      // unless the device asks for another time
		Tick:             10 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	h.traffic = func(c gnet.Conn, msg string) gnet.Action {
		keepAlive, err := time.ParseDuration(strings.TrimSpace(msg))
		if err != nil {
			return gnet.Close
		}
		conn, _ := reaper.Conn(c)
		conn.Ready()
		if err := conn.SetTimeouts(idle.Timeouts{Read: keepAlive * 3 / 2}); err != nil {
			return gnet.Close // the time is out of range
		}
		return gnet.None
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	fmt.Fprintln(c, 100*time.Millisecond) // then the device is silent
	if reason, ok := errors.AsType[*idle.ReapError](<-h.closed); ok {
		fmt.Println(reason.Reason, "limit", reason.Limit)
	}
	// Output: read idle limit 150ms
}

// A connection is not idle while its server works on the answer, here for three timeouts.
func ExampleConn_Hold() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: 100 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	h.opened = func(c gnet.Conn) {
		conn, _ := reaper.Conn(c)
		conn.Hold()
		go func() {
			time.Sleep(300 * time.Millisecond) // the work
			_ = c.AsyncWrite([]byte("your report\n"), func(gnet.Conn, error) error {
				conn.Release() // here, on the loop goroutine
				return nil
			})
		}()
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	heard, _ := io.ReadAll(c)
	fmt.Printf("%s", heard)
	fmt.Println("and then:", errors.Is(<-h.closed, idle.ReadIdle))
	// Output:
	// your report
	// and then: true
}

// A client must log in within ten seconds. Other messages do not extend the time.
func ExampleConn_Ready() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{HandshakeTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	h.traffic = func(c gnet.Conn, msg string) gnet.Action {
		if strings.HasPrefix(msg, "LOGIN") {
			conn, _ := reaper.Conn(c)
			conn.Ready()
		}
		_, _ = c.Write([]byte("ok\n"))
		return gnet.None
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	for _, msg := range []string{"HELP\n", "LOGIN alice\n"} {
		fmt.Fprint(c, msg)
		read(c, "ok\n")
		found, err := reaper.Inspect(context.Background(), idle.Query{Limit: 1})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v after %s", found.Connections[0].State, msg)
	}
	// Output:
	// handshake after HELP
	// open after LOGIN alice
}

// A client gets three prices. If it closes before, no more are made for it.
func ExampleConn_Every() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: time.Minute, Tick: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	h.opened = func(c gnet.Conn) {
		conn, _ := reaper.Conn(c)
		n := 0
		var stop func() bool
		stop = conn.Every(20*time.Millisecond, func(c gnet.Conn) {
			n++
			fmt.Fprintf(c, "price %d\n", n)
			if n == 3 {
				stop()
				_ = c.Close()
			}
		})
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	heard, _ := io.ReadAll(c)
	fmt.Printf("%s", heard)
	// Output:
	// price 1
	// price 2
	// price 3
}

// The connection of an operator is never closed.
func ExampleConn_Exempt() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	h.opened = func(c gnet.Conn) {
		if host, _, _ := net.SplitHostPort(c.RemoteAddr().String()); host == "127.0.0.1" {
			conn, _ := reaper.Conn(c)
			conn.Exempt(true)
		}
	}
	addr, stop := serve(reaper, h)
	defer stop()

	defer connect(addr).Close()
	found, err := reaper.Inspect(context.Background(), idle.Query{Limit: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.Connections[0].State)
	// Output: exempt
}
