// Command redis is a server for a part of the Redis protocol, on gnet: PING, GET, SET, QUIT,
// CLIENT LIST, CLIENT KILL ID, CONFIG SET timeout, and CLIENT TIMEOUT, which Redis lacks: it sets
// the timeout of one connection.
//
//	go -C examples run ./redis
//	redis-cli -p 6379                  # in another terminal
//	127.0.0.1:6379> CLIENT LIST
//	127.0.0.1:6379> CLIENT TIMEOUT 5   # wait, and the next command connects again
//
// A client that sends nothing for -read-timeout is closed. CLIENT KILL closes a client at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

type store struct {
	gnet.BuiltinEventEngine
	reaper *idle.Reaper
	values sync.Map // string by string
}

// A client is the state of a connection. It is owned by the loop goroutine.
type client struct {
	conn idle.Conn
	busy bool // a goroutine works on a command
}

func (s *store) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	conn, _ := s.reaper.Conn(c)
	c.SetContext(&client{conn: conn})
	return nil, gnet.None
}

func (s *store) OnClose(c gnet.Conn, err error) gnet.Action {
	log.Printf("%v closed: %v", c.RemoteAddr(), err)
	return gnet.None
}

func (s *store) OnTraffic(c gnet.Conn) gnet.Action {
	client := c.Context().(*client)
	for !client.busy { // the answers have the order of the commands
		b, _ := c.Peek(-1)
		args, n, err := parse(b)
		if err != nil {
			_, _ = c.Write(failure(err))
			return gnet.Close
		}
		if n == 0 {
			return gnet.None // the rest of the command is on its way
		}
		_, _ = c.Discard(n)
		if name := strings.ToUpper(strings.Join(args[:min(2, len(args))], " ")); name == "CLIENT LIST" || name == "CLIENT KILL" {
			s.inBackground(c, client, args)
			continue
		}
		answer, action := s.command(client, args)
		if _, _ = c.Write(answer); action != gnet.None {
			return action
		}
		if c.OutboundBuffered() > 2*maxBytes { // the limit of output is checked after OnTraffic
			return gnet.Close
		}
	}
	return gnet.None
}

func (s *store) command(client *client, args []string) ([]byte, gnet.Action) {
	switch name := strings.ToUpper(args[0]); {
	case name == "PING":
		return []byte("+PONG\r\n"), gnet.None
	case name == "QUIT":
		return []byte("+OK\r\n"), gnet.Close
	case name == "SET" && len(args) == 3:
		s.values.Store(args[1], args[2])
		return done(nil), gnet.None
	case name == "GET" && len(args) == 2:
		if value, ok := s.values.Load(args[1]); ok {
			return bulk(value.(string)), gnet.None
		}
		return []byte("$-1\r\n"), gnet.None
	case name == "CONFIG" && len(args) == 4 && strings.EqualFold(args[1]+" "+args[2], "SET timeout"):
		return withSeconds(args[3], func(timeout time.Duration) error {
			return s.reaper.Adjust(map[string]time.Duration{"read-timeout": timeout})
		}), gnet.None
	case name == "CLIENT" && len(args) == 3 && strings.EqualFold(args[1], "TIMEOUT"):
		return withSeconds(args[2], func(timeout time.Duration) error {
			return client.conn.SetTimeouts(idle.Timeouts{Read: timeout})
		}), gnet.None
	}
	return failure(fmt.Errorf("unknown command %.64q", args)), gnet.None
}

// inBackground runs a command that asks all event loops. It would block its own loop.
func (s *store) inBackground(c gnet.Conn, client *client, args []string) {
	client.busy = true
	client.conn.Hold() // a client that waits for an answer is not idle
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		answer := failure(errors.New("try CLIENT KILL ID followed by an id of CLIENT LIST"))
		if strings.EqualFold(args[1], "LIST") {
			found, err := s.reaper.Inspect(ctx, idle.Query{Limit: 1000})
			answer = list(found, err)
		} else if len(args) == 4 && strings.EqualFold(args[2], "ID") {
			answer = done(s.reaper.Kick(ctx, idle.ConnID(args[3])))
		}
		_ = c.AsyncWrite(answer, func(c gnet.Conn, _ error) error {
			client.busy = false
			client.conn.Release()
			return c.Wake(nil) // OnTraffic reads the next command
		})
	}()
}

func main() {
	s := &store{}
	cfg := server.Config{Addresses: []string{"127.0.0.1:6379"}, Handler: s, OnStarted: func(s *server.Server) {
		log.Printf("listening on %v", s.Addr())
	}}
	cfg.AddFlags(flag.CommandLine)
	limits := settings.New(flag.CommandLine, idle.Config{ReadTimeout: 5 * time.Minute, OutputLimit: idle.OutputLimit{Hard: 2 * maxBytes}})
	flag.Parse()
	if err := limits.Load(&cfg.Idle); err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	s.reaper = srv.Reaper()
	if err := srv.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
