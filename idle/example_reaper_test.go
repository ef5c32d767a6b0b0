package idle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// New limits at run time apply to open connections.
func ExampleReaper_Update() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()
	defer connect(addr).Close()

	if err := reaper.Update(func(cfg *idle.Config) { cfg.ReadTimeout = 200 * time.Millisecond }); err != nil {
		log.Fatal(err)
	}
	if reason, ok := errors.AsType[*idle.ReapError](<-h.closed); ok {
		fmt.Println(reason.Reason, "limit", reason.Limit)
	}

	err = reaper.Update(func(cfg *idle.Config) { cfg.ReadTimeout = -1 })
	fmt.Println(err != nil, "and still", reaper.Config().ReadTimeout)
	// Output:
	// read idle limit 200ms
	// true and still 200ms
}

// A server that is short of memory shortens the idle timeouts of all connections for a while.
func ExampleReaper_ScaleTimeouts() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()
	defer connect(addr).Close()

	if err := reaper.ScaleTimeouts(1, 200*time.Millisecond); err != nil { // 0.5 halves an hour
		log.Fatal(err)
	}
	if reason, ok := errors.AsType[*idle.ReapError](<-h.closed); ok {
		fmt.Println(reason.Reason, "limit", reason.Limit)
	}
	fmt.Println("and back:", reaper.ScaleTimeouts(0, 0))
	// Output:
	// read idle limit 200ms
	// and back: <nil>
}

// The twenty connections that have been silent longest.
func ExampleReaper_Inspect() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()
	c := connect(addr)
	defer c.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := reaper.Inspect(ctx, idle.Query{Limit: 20, States: true})
	if err != nil {
		log.Fatal(err)
	}
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
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()
	defer connect(addr).Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := reaper.Inspect(ctx, idle.Query{Limit: 1, By: "age"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reaper.Kick(ctx, found.Connections[0].ID))
	fmt.Println(<-h.closed)
	fmt.Println(reaper.Kick(ctx, found.Connections[0].ID))
	// Output:
	// <nil>
	// idle: connection reaped: kicked
	// idle: the connection is not watched
}

// The connections that were reaped last, for a page that shows them.
func ExampleReaper_Inspect_closed() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{FirstByteTimeout: 50 * time.Millisecond, KeepClosed: 100})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	<-h.closed
	found, err := reaper.Inspect(context.Background(), idle.Query{Closed: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, closed := range found.Closed {
		fmt.Println(closed.Remote.String() == c.LocalAddr().String(), closed.Err.Reason)
	}
	// Output: true no first byte
}

// Before a server stops, its clients are disconnected one after another. Package server has the
// complete sequence.
func ExampleReaper_Drain() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{
		ReadTimeout: time.Hour,
		Goodbye:     func(gnet.Conn, *idle.ReapError) []byte { return []byte("going down\n") },
	})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()
	c := connect(addr)
	defer c.Close()

	if err := reaper.Drain(100*time.Millisecond, 200*time.Millisecond); err != nil {
		log.Fatal(err)
	}
	heard, _ := io.ReadAll(c)
	fmt.Printf("%s", heard)
	fmt.Println(errors.Is(<-h.closed, idle.Drained), reaper.Connections(), "left")
	// Output:
	// going down
	// true 0 left
}

// Counters for a metrics page.
func ExampleReaper_Stats() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: 100 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	addr, stop := serve(reaper, h)
	defer stop()
	defer connect(addr).Close()
	<-h.closed

	s := reaper.Stats()
	fmt.Println(s.Opened, "opened,", s.Closed, "closed,", s.Connections, "open")
	fmt.Println(s.Reaped[idle.ReadIdle], idle.ReadIdle)
	fmt.Println("late by less than an hour:", s.Lateness.Max < time.Hour)
	// Output:
	// 1 opened, 1 closed, 0 open
	// 1 read idle
	// late by less than an hour: true
}
