package idle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/reap"
)

// The helpers are in the file of the examples, so that each example on pkg.go.dev is a whole
// program: newApp makes a handler of functions, watch makes its Reaper, serve runs both, connect is
// a client, check ends the program after an error.

// An app is a gnet.EventHandler made of functions, so that an example reads from top to bottom.
type app struct {
	gnet.BuiltinEventEngine
	opened  func(c gnet.Conn)
	traffic func(c gnet.Conn, msg string) gnet.Action
	closed  chan error // the errors that OnClose got

	booted chan bool
	eng    gnet.Engine
	addr   string
}

func newApp() *app {
	return &app{
		opened:  func(gnet.Conn) {},
		traffic: func(gnet.Conn, string) gnet.Action { return gnet.None },
		closed:  make(chan error, 16),
		booted:  make(chan bool),
	}
}

func (a *app) OnBoot(eng gnet.Engine) gnet.Action {
	defer close(a.booted)
	a.eng = eng
	fd, err := eng.Dup()
	if err != nil {
		return gnet.None // a client
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	ln, err := net.FileListener(f)
	check(err)
	defer ln.Close()
	a.addr = ln.Addr().String() // with the port that the kernel chose
	return gnet.None
}

func (a *app) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	a.opened(c)
	return []byte("hello\n"), gnet.None
}

func (a *app) OnTraffic(c gnet.Conn) gnet.Action {
	msg, _ := c.Next(-1)
	return a.traffic(c, string(msg))
}

func (a *app) OnClose(_ gnet.Conn, err error) gnet.Action {
	a.closed <- err
	return gnet.None
}

// check ends the program if there is an error.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// watch returns an app, and its Reaper.
func watch(cfg idle.Config) (*app, *idle.Reaper) {
	a := newApp()
	reaper, err := idle.Middleware(a, cfg)
	check(err)
	return a, reaper
}

// serve runs a server on a free port of this host until stop is called.
func serve(reaper *idle.Reaper, a *app) (addr string, stop func()) {
	running, ended := context.WithCancel(context.Background())
	go func() {
		defer ended()
		check(gnet.Run(reaper, "tcp://127.0.0.1:0", gnet.WithLogger(silentLog{})))
	}()
	<-a.booted
	return a.addr, func() {
		_ = a.eng.Stop(running)
		<-running.Done()
	}
}

// connect returns a connection to an app that has opened it.
func connect(addr string) net.Conn {
	c, err := net.Dial("tcp", addr)
	check(err)
	read(c, "hello\n")
	return c
}

// printAll prints all that a server sends.
func printAll(c net.Conn) {
	defer c.Close()
	heard, _ := io.ReadAll(c)
	fmt.Printf("%s", heard)
}

// read reads the expected bytes.
func read(c net.Conn, want string) string {
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		log.Fatalf("read %q, %v, want %q", b, err, want)
	}
	return want
}

// silentLog keeps the log of gnet out of the output.
type silentLog struct{}

func (silentLog) Debugf(string, ...any) {}
func (silentLog) Infof(string, ...any)  {}
func (silentLog) Warnf(string, ...any)  {}
func (silentLog) Errorf(string, ...any) {}
func (silentLog) Fatalf(string, ...any) {}

// A silent connection is closed, and OnClose gets the reason.
func ExampleMiddleware() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: 100 * time.Millisecond})
	check(err)
	addr, stop := serve(reaper, h)
	defer stop()

	defer connect(addr).Close() // a silent client
	reason := <-h.closed
	fmt.Println(errors.Is(reason, reap.ReadIdle), errors.Is(reason, os.ErrDeadlineExceeded))
	// Output: true true
}

// A client notices that its server no longer answers.
func ExampleMiddleware_client() {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a server that never answers
	check(err)
	defer silent.Close()

	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{Heartbeat: idle.Heartbeat{
		Interval: 50 * time.Millisecond,
		Ping:     func(gnet.Conn) []byte { return []byte("PING\n") },
	}})
	check(err)
	client, err := gnet.NewClient(reaper, gnet.WithLogger(silentLog{}))
	check(err)
	check(client.Start())
	if _, err := client.Dial("tcp", silent.Addr().String()); err != nil {
		log.Fatal(err)
	}
	reason := <-h.closed
	fmt.Println("time to connect to another one:", errors.Is(reason, reap.HeartbeatTimeout))
	_ = client.Stop()
	// Output: time to connect to another one: true
}

// A goodbye is sent to a connection before it is closed.
func ExampleConfig_goodbye() {
	h, reaper := watch(idle.Config{
		FirstByteTimeout: 100 * time.Millisecond,
		Goodbye: func(_ gnet.Conn, reason *idle.ReapError) []byte {
			return fmt.Appendf(nil, "421 %v, closing\n", reason.Reason)
		},
	})
	addr, stop := serve(reaper, h)
	defer stop()

	printAll(connect(addr))
	// Output: 421 no first byte, closing
}

// A full server sends a refusal. Connections that have been silent for a while make room for new
// ones, here after a minute.
func ExampleConfig_maxConnections() {
	h, reaper := watch(idle.Config{
		MaxConnections: 2,
		ShedProtect:    time.Minute,
		Refusal:        func(gnet.Conn) []byte { return []byte("full\n") },
	})
	addr, stop := serve(reaper, h)
	defer stop()

	defer connect(addr).Close()
	defer connect(addr).Close()
	third, err := net.Dial("tcp", addr)
	check(err)
	printAll(third)
	fmt.Println(reaper.Connections(), "of", reaper.Config().MaxConnections, "are open,", reaper.Stats().Refused, "was refused")
	// Output:
	// full
	// 2 of 2 are open, 1 was refused
}

// New limits are tried without closing any connection.
func ExampleConfig_observeOnly() {
	h, reaper := watch(idle.Config{ReadTimeout: 100 * time.Millisecond, ObserveOnly: true})
	addr, stop := serve(reaper, h)
	defer stop()

	defer connect(addr).Close()
	for reaper.Stats().Observed[reap.ReadIdle] == 0 { // each is logged as well
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(reaper.Stats().Observed.Total(), "would be closed,", reaper.Connections(), "is open")

	check(reaper.Update(func(cfg *idle.Config) { cfg.ObserveOnly = false }))
	fmt.Println("and now:", errors.Is(<-h.closed, reap.ReadIdle))
	// Output:
	// 1 would be closed, 1 is open
	// and now: true
}

// A server pings silent peers twice before it closes the connection. In production the times would
// be a minute and half a minute.
func ExampleHeartbeat() {
	h, reaper := watch(idle.Config{Heartbeat: idle.Heartbeat{
		Interval: 100 * time.Millisecond, Retry: 50 * time.Millisecond, MaxMissed: 2,
		Ping: func(gnet.Conn) []byte { return []byte("PING\n") },
	}})
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	heard, _ := io.ReadAll(c) // any byte would be an answer
	fmt.Printf("%s", heard)
	fmt.Println("gave up:", errors.Is(<-h.closed, reap.HeartbeatTimeout))
	// Output:
	// PING
	// PING
	// gave up: true
}

// A handler asks a silent peer, and gives it one more timeout to answer.
func ExampleConfig_onIdle() {
	h, reaper := watch(idle.Config{
		ReadTimeout: 100 * time.Millisecond,
		OnIdle: func(c gnet.Conn, ev idle.Event) gnet.Action {
			if ev.First {
				_, _ = c.Write([]byte("are you there?\n"))
				return gnet.None
			}
			return gnet.Close // OnClose gets the reason
		},
	})
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	heard, _ := io.ReadAll(c) // and sends nothing
	fmt.Printf("%s", heard)
	fmt.Println("closed, read idle:", errors.Is(<-h.closed, reap.ReadIdle))
	// Output:
	// are you there?
	// closed, read idle: true
}

// Only a pong shows that the peer is alive, and only the handler can tell a pong from other
// messages.
func ExampleConn_Alive() {
	h, reaper := watch(idle.Config{Heartbeat: idle.Heartbeat{
		Interval: 100 * time.Millisecond, Retry: time.Minute,
		Ping:   func(gnet.Conn) []byte { return []byte("PING\n") },
		IsPong: func(gnet.Conn) bool { return false }, // the handler calls Alive
	}})
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
	h, reaper := watch(idle.Config{
		HandshakeTimeout: 10 * time.Second, // until Conn.Ready
		ReadTimeout:      time.Minute,      // unless the device asks for another time
		Tick:             10 * time.Millisecond,
	})
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
	var reason *idle.ReapError
	if errors.As(<-h.closed, &reason) {
		fmt.Println(reason.Reason, "limit", reason.Limit)
	}
	// Output: read idle limit 150ms
}

// A connection is not idle while its server works on the answer, here for three timeouts.
func ExampleConn_Hold() {
	h, reaper := watch(idle.Config{ReadTimeout: 100 * time.Millisecond})
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

	printAll(connect(addr))
	fmt.Println("and then:", errors.Is(<-h.closed, reap.ReadIdle))
	// Output:
	// your report
	// and then: true
}

// A client must log in within ten seconds. Other messages do not extend the time.
func ExampleConn_Ready() {
	h, reaper := watch(idle.Config{HandshakeTimeout: 10 * time.Second})
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
		check(err)
		fmt.Printf("%v after %s", found.Connections[0].State, msg)
	}
	// Output:
	// handshake after HELP
	// open after LOGIN alice
}

// A client gets three prices. If it closes before, no more are made for it.
func ExampleConn_Every() {
	h, reaper := watch(idle.Config{ReadTimeout: time.Minute, Tick: 10 * time.Millisecond})
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

	printAll(connect(addr))
	// Output:
	// price 1
	// price 2
	// price 3
}

// The connection of an operator is never closed.
func ExampleConn_Exempt() {
	h, reaper := watch(idle.Config{ReadTimeout: time.Minute})
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
	check(err)
	fmt.Println(found.Connections[0].State)
	// Output: exempt
}

// New limits at run time apply to open connections.
func ExampleReaper_Update() {
	h, reaper := watch(idle.Config{ReadTimeout: time.Hour})
	addr, stop := serve(reaper, h)
	defer stop()
	defer connect(addr).Close()

	check(reaper.Update(func(cfg *idle.Config) { cfg.ReadTimeout = 200 * time.Millisecond }))
	var reason *idle.ReapError
	if errors.As(<-h.closed, &reason) {
		fmt.Println(reason.Reason, "limit", reason.Limit)
	}

	err := reaper.Update(func(cfg *idle.Config) { cfg.ReadTimeout = -1 })
	fmt.Println(err != nil, "and still", reaper.Config().ReadTimeout)
	// Output:
	// read idle limit 200ms
	// true and still 200ms
}

// A server that is short of memory shortens the idle timeouts of all connections for a while.
func ExampleReaper_ScaleTimeouts() {
	h, reaper := watch(idle.Config{ReadTimeout: time.Hour})
	addr, stop := serve(reaper, h)
	defer stop()
	defer connect(addr).Close()

	if err := reaper.ScaleTimeouts(1, 200*time.Millisecond); err != nil { // 0.5 halves an hour
		log.Fatal(err)
	}
	var reason *idle.ReapError
	if errors.As(<-h.closed, &reason) {
		fmt.Println(reason.Reason, "limit", reason.Limit)
	}
	fmt.Println("and back:", reaper.ScaleTimeouts(0, 0))
	// Output:
	// read idle limit 200ms
	// and back: <nil>
}

// The twenty connections that have been silent longest.
func ExampleReaper_Inspect() {
	h, reaper := watch(idle.Config{ReadTimeout: time.Hour})
	addr, stop := serve(reaper, h)
	defer stop()
	c := connect(addr)
	defer c.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := reaper.Inspect(ctx, idle.Query{Limit: 20, States: true})
	check(err)
	fmt.Println(found.States["open"], "open")
	for _, info := range found.Connections {
		fmt.Println(info.Remote.String() == c.LocalAddr().String(), info.State, info.Due > time.Minute)
	}
	// Output:
	// 1 open
	// true open true
}

// An operator closes the oldest connection.
func ExampleReaper_Kick() {
	h, reaper := watch(idle.Config{ReadTimeout: time.Hour})
	addr, stop := serve(reaper, h)
	defer stop()
	defer connect(addr).Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := reaper.Inspect(ctx, idle.Query{Limit: 1, By: "age"})
	check(err)
	fmt.Println(reaper.Kick(ctx, found.Connections[0].ID))
	fmt.Println(<-h.closed)
	fmt.Println(reaper.Kick(ctx, found.Connections[0].ID))
	// Output:
	// <nil>
	// idle: connection reaped: kicked
	// idle: the connection is not watched
}

// Before a server stops, its clients are disconnected one after another. Package server has the
// complete sequence.
func ExampleReaper_Drain() {
	h, reaper := watch(idle.Config{
		ReadTimeout: time.Hour,
		Goodbye:     func(gnet.Conn, *idle.ReapError) []byte { return []byte("going down\n") },
	})
	addr, stop := serve(reaper, h)
	defer stop()
	c := connect(addr)
	defer c.Close()

	check(reaper.Drain(100*time.Millisecond, 200*time.Millisecond))
	heard, _ := io.ReadAll(c)
	fmt.Printf("%s", heard)
	fmt.Println(errors.Is(<-h.closed, reap.Drained), reaper.Connections(), "left")
	// Output:
	// going down
	// true 0 left
}

// Counters for a metrics page.
func ExampleReaper_Stats() {
	h, reaper := watch(idle.Config{ReadTimeout: 100 * time.Millisecond})
	addr, stop := serve(reaper, h)
	defer stop()
	defer connect(addr).Close()
	<-h.closed

	s := reaper.Stats()
	fmt.Println(s.Opened, "opened,", s.Closed, "closed,", s.Connections, "open")
	fmt.Println(s.Reaped[reap.ReadIdle], reap.ReadIdle)
	fmt.Println("late by less than an hour:", s.Lateness.Max < time.Hour)
	// Output:
	// 1 opened, 1 closed, 0 open
	// 1 read idle
	// late by less than an hour: true
}
