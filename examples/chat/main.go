// Command chat sends each line of a client to all clients, on gnet. A client that reads slowly gets
// several lines in one write, and loses lines if that is not enough. Its memory never grows.
//
//	go -C examples run ./chat
//	socat - TCP:127.0.0.1:9000    # in two other terminals
//
// Stop one client with Ctrl-Z, and send many lines with the other one. When the first goes on (fg),
// it reads how many lines were dropped. -output-high-mark sets how much output waits for a client.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

const maxLine = 1 << 10 // bytes

type room struct {
	gnet.BuiltinEventEngine
	reaper *idle.Reaper

	mu      sync.Mutex
	members map[*member]bool // guarded by mu
}

func (r *room) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	conn, _ := r.reaper.Conn(c)
	m := &member{c: c, conn: conn}
	c.SetContext(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members[m] = true
	return fmt.Appendf(nil, "* %d are here\n", len(r.members)), gnet.None
}

func (r *room) OnClose(c gnet.Conn, err error) gnet.Action {
	log.Printf("%v closed: %v", c.RemoteAddr(), err)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, c.Context().(*member))
	return gnet.None
}

func (r *room) OnTraffic(c gnet.Conn) gnet.Action {
	for {
		b, _ := c.Peek(-1)
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 && len(b) < maxLine {
			return gnet.None // the rest of the line is on its way
		}
		if end == 0 || end > maxLine {
			return gnet.Close
		}
		r.say(b[:end])
		_, _ = c.Discard(end)
	}
}

// say gives a line to all members.
func (r *room) say(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for m := range r.members {
		if m.add(line) {
			_ = m.c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
				m.write()
				return nil
			}))
		}
	}
}

func main() {
	r := &room{members: map[*member]bool{}}
	cfg := server.Config{Addresses: []string{"127.0.0.1:9000"}, Handler: r, OnStarted: func(s *server.Server) {
		log.Printf("listening on %v", s.Addr())
	}}
	cfg.AddFlags(flag.CommandLine)
	cfg.Idle.OutputMarks.OnWritable = func(c gnet.Conn, writable bool) {
		if writable {
			c.Context().(*member).write()
		}
	}
	limits := settings.New(flag.CommandLine, idle.Config{
		WriteStallTimeout: time.Hour, // a client may stop for long, since it costs little
		OutputMarks:       idle.OutputMarks{High: 64 << 10},
		Tick:              10 * time.Millisecond, // until a client that has read goes on
	})
	flag.Parse()
	if err := limits.Load(&cfg.Idle); err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	r.reaper = srv.Reaper()
	if err := srv.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
