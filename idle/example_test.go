package idle_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// handler is the handler of the README.
type handler struct{ gnet.BuiltinEventEngine }

func (*handler) OnTraffic(c gnet.Conn) gnet.Action {
	msg, _ := c.Next(-1)
	c.Write(msg)
	return gnet.None
}

func (*handler) OnClose(c gnet.Conn, err error) gnet.Action {
	if errors.Is(err, idle.ReadIdle) {
		log.Printf("%v: %v", c.RemoteAddr(), err)
	}
	return gnet.None
}

// An echo server that closes connections after a minute of silence.
//
// The examples below use shorter times and four helpers. newApp makes a handler of functions; its
// channel closed receives the errors that OnClose gets. serve runs the handler on a free port until
// stop is called. connect is a client. read reads the expected bytes.
func Example() {
	reaper, err := idle.Middleware(&handler{}, idle.Config{ReadTimeout: 60 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(gnet.Run(reaper, "tcp://:9000", gnet.WithMulticore(true)))
}

// A silent connection is closed, and OnClose gets the reason.
func ExampleMiddleware() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: 100 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()

	defer connect(addr).Close() // a silent client
	reason := <-h.closed
	fmt.Println(errors.Is(reason, idle.ReadIdle), errors.Is(reason, os.ErrDeadlineExceeded))
	// Output: true true
}

// An error names every field that is wrong.
func ExampleMiddleware_badConfig() {
	_, err := idle.Middleware(&handler{}, idle.Config{
		ReadTimeout: -time.Second,
		Jitter:      2,
	})
	fmt.Println(err)
	// Output:
	// idle: Config.ReadTimeout is -1s: set a positive duration such as 60s, or 0 for none
	// idle: Config.Jitter is 2: set at most 1
}

// A client notices that its server no longer answers.
func ExampleMiddleware_client() {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a server that never answers
	if err != nil {
		log.Fatal(err)
	}
	defer silent.Close()

	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{Heartbeat: idle.Heartbeat{
		Interval: 50 * time.Millisecond,
		Ping:     func(gnet.Conn) []byte { return []byte("PING\n") },
	}})
	if err != nil {
		log.Fatal(err)
	}
	client, err := gnet.NewClient(reaper, gnet.WithLogger(silentLog{}))
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Start(); err != nil {
		log.Fatal(err)
	}
	if _, err := client.Dial("tcp", silent.Addr().String()); err != nil {
		log.Fatal(err)
	}
	reason := <-h.closed
	fmt.Println("time to connect to another one:", errors.Is(reason, idle.HeartbeatTimeout))
	_ = client.Stop()
	// Output: time to connect to another one: true
}

// A goodbye is sent to a connection before it is closed.
func ExampleConfig_goodbye() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{
		FirstByteTimeout: 100 * time.Millisecond,
		Goodbye: func(_ gnet.Conn, reason *idle.ReapError) []byte {
			return fmt.Appendf(nil, "421 %v, closing\n", reason.Reason)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	heard, _ := io.ReadAll(c)
	fmt.Printf("%s", heard)
	// Output: 421 no first byte, closing
}

// A full server sends a refusal. Connections that have been silent for a while make room for new
// ones, here after a minute.
func ExampleConfig_maxConnections() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{
		MaxConnections: 2,
		ShedProtect:    time.Minute,
		Refusal:        func(gnet.Conn) []byte { return []byte("full\n") },
	})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()

	defer connect(addr).Close()
	defer connect(addr).Close()
	third, err := net.Dial("tcp", addr)
	if err != nil {
		log.Fatal(err)
	}
	defer third.Close()
	heard, _ := io.ReadAll(third)
	fmt.Printf("%s", heard)
	fmt.Println(reaper.Connections(), "of", reaper.Config().MaxConnections, "are open,", reaper.Stats().Refused, "was refused")
	// Output:
	// full
	// 2 of 2 are open, 1 was refused
}

// New limits are tried without closing any connection.
func ExampleConfig_observeOnly() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: 100 * time.Millisecond, ObserveOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()

	defer connect(addr).Close()
	for reaper.Stats().Observed[idle.ReadIdle] == 0 { // each is logged as well
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(reaper.Stats().Observed.Total(), "would be closed,", reaper.Connections(), "is open")

	if err := reaper.Update(func(cfg *idle.Config) { cfg.ObserveOnly = false }); err != nil {
		log.Fatal(err)
	}
	fmt.Println("and now:", errors.Is(<-h.closed, idle.ReadIdle))
	// Output:
	// 1 would be closed, 1 is open
	// and now: true
}

// A server pings silent peers twice before it closes the connection. In production the times would
// be a minute and half a minute.
func ExampleHeartbeat() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{Heartbeat: idle.Heartbeat{
		Interval: 100 * time.Millisecond, Retry: 50 * time.Millisecond, MaxMissed: 2,
		Ping: func(gnet.Conn) []byte { return []byte("PING\n") },
	}})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	heard, _ := io.ReadAll(c) // any byte would be an answer
	fmt.Printf("%s", heard)
	fmt.Println("gave up:", errors.Is(<-h.closed, idle.HeartbeatTimeout))
	// Output:
	// PING
	// PING
	// gave up: true
}

// A histogram of the lateness of reaped connections. The last bucket has no bound.
func ExampleLatenessStats() {
	late := idle.LatenessStats{ // of Reaper.Stats
		Bounds:  []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond},
		Buckets: []uint64{0, 7, 1, 0},
	}
	for i, bound := range late.Bounds {
		if n := late.Buckets[i]; n > 0 {
			fmt.Println(n, "reaped up to", bound, "late")
		}
	}
	// Output:
	// 7 reaped up to 10ms late
	// 1 reaped up to 100ms late
}

// The error that OnClose gets says why the connection was closed.
func ExampleReapError() {
	onClose := func(err error) {
		reason, reaped := errors.AsType[*idle.ReapError](err)
		switch {
		case !reaped:
			fmt.Println("closed by the peer or the handler:", err)
		case errors.Is(err, idle.WriteStall), errors.Is(err, idle.OverLimit):
			fmt.Println("slow:", reason)
		default:
			fmt.Println(reason.Reason, "after", reason.Lasted, "timeout:", reason.Timeout())
		}
	}
	onClose(io.EOF)
	onClose(&idle.ReapError{Reason: idle.ReadIdle, Limit: time.Minute, Lasted: 60100 * time.Millisecond})
	onClose(&idle.ReapError{Reason: idle.OverLimit, Bytes: 9 << 20, LimitBytes: 8 << 20})
	// Output:
	// closed by the peer or the handler: EOF
	// read idle after 1m0.1s timeout: true
	// slow: idle: connection reaped: over limit: 9437184 bytes of output wait, limit 8388608
}

// The numbers of a Stats for each reason.
func ExampleCounts() {
	s := idle.Stats{Reaped: idle.Counts{idle.ReadIdle: 3, idle.Shed: 1}} // of Reaper.Stats
	fmt.Println(s.Reaped.Total(), "reaped,", s.Reaped[idle.ReadIdle], "of them", idle.ReadIdle)
	// Output:
	// 4 reaped, 3 of them read idle
}
