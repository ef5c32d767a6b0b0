// Command chat is the chat server of docs/start.md, with all of its steps.
package main

import (
	"bytes"
	"context"
	"flag"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/panjf2000/gnet/v2"
)

var addr = flag.String("addr", "127.0.0.1:9000", "address to listen on")

var quiet = flag.Duration("quiet", 10*time.Second, "silence of a client before the server reacts")

var page = flag.String("page", "127.0.0.1:7080", "address of the page for operators")

// A room is the handler of all connections. Several event loops call it at the same time.
type room struct {
	gnet.BuiltinEventEngine
	reaper  *idle.Reaper // set before the first connection
	mu      sync.Mutex
	members map[gnet.Conn]member
}

type member struct {
	name string
	id   idle.ConnID
}

func (r *room) OnOpen(gnet.Conn) ([]byte, gnet.Action) {
	return []byte("your name?\n"), gnet.None
}

// OnTraffic splits the bytes of a client into lines.
func (r *room) OnTraffic(c gnet.Conn) gnet.Action {
	for {
		buffered, _ := c.Peek(-1)
		end := bytes.IndexByte(buffered, '\n')
		switch {
		case end < 0 && len(buffered) > 1024:
			return gnet.Close // no line is as long
		case end < 0:
			return gnet.None // the rest of the line comes later
		}
		line := strings.TrimSpace(string(buffered[:end]))
		c.Discard(end + 1)
		r.line(c, line)
	}
}

// line handles one line of a client. The first one is its name.
func (r *room) line(c gnet.Conn, line string) {
	if line == "PONG" {
		return
	}
	if name, ok := strings.CutPrefix(line, "/kick "); ok {
		go r.kick(name) // a real server checks first whether the client may do that
		return
	}
	r.mu.Lock()
	m, joined := r.members[c]
	r.mu.Unlock()
	if joined {
		r.say(m.name + ": " + line)
		return
	}
	conn, ok := r.reaper.Conn(c)
	if !ok {
		return // the connection is closing
	}
	conn.Ready()
	r.mu.Lock()
	r.members[c] = member{name: line, id: conn.ID()}
	r.mu.Unlock()
	r.say(line + " joined")
}

// say sends a line to all members.
func (r *room) say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.members {
		c.AsyncWrite([]byte(line+"\n"), nil)
	}
}

func (r *room) OnClose(c gnet.Conn, err error) gnet.Action {
	log.Printf("%v closed: %v", c.RemoteAddr(), err)
	r.mu.Lock()
	m, joined := r.members[c]
	delete(r.members, c)
	r.mu.Unlock()
	if joined {
		r.say(m.name + " left")
	}
	return gnet.None
}

func main() {
	flag.Parse()
	r := &room{members: map[gnet.Conn]member{}}
	s, err := server.New(server.Config{
		Addresses: []string{*addr},
		Handler:   r,
		Idle:      limits(),
		Drain:     server.Drain{Spread: *quiet / 2},
		Admin:     server.Admin{Addr: *page},
		OnStarted: func(s *server.Server) {
			log.Printf("listening on %v, page on http://%v/", s.Addr(), s.AdminAddr())
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	r.reaper = s.Reaper()
	if err := s.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
	log.Print("drained")
}

// limits says when a connection is closed.
func limits() idle.Config {
	return idle.Config{
		HandshakeTimeout: *quiet,
		Heartbeat: idle.Heartbeat{
			Interval:  *quiet,
			MaxMissed: 2,
			Ping:      func(gnet.Conn) []byte { return []byte("PING\n") },
		},
		Goodbye: func(_ gnet.Conn, reason *idle.ReapError) []byte {
			return []byte("goodbye: " + reason.Reason.Error() + "\n")
		},
	}
}

// kick closes the connections with a name.
func (r *room) kick(name string) {
	var ids []idle.ConnID
	r.mu.Lock()
	for _, m := range r.members {
		if m.name == name {
			ids = append(ids, m.id)
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, id := range ids {
		if err := r.reaper.Kick(ctx, id); err != nil {
			log.Printf("kicking %s: %v", name, err)
		}
	}
}
