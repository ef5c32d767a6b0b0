package idle_test

import (
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// handler is the one of the README.
type handler struct{ gnet.BuiltinEventEngine }

func (*handler) OnTraffic(c gnet.Conn) gnet.Action {
	msg, _ := c.Next(-1)
	c.Write(msg)
	return gnet.None
}

func (*handler) OnClose(c gnet.Conn, err error) gnet.Action {
	if errors.Is(err, idle.ErrReadIdle) {
		log.Printf("%v: %v", c.RemoteAddr(), err)
	}
	return gnet.None
}

func ExampleMiddleware() {
	reaper, err := idle.Middleware(&handler{}, idle.Config{ReadTimeout: 60 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(gnet.Run(reaper, "tcp://:9000", gnet.WithMulticore(true)))
}

// asker sends a ping to a peer that is silent, and gives it one more timeout to answer.
type asker struct {
	gnet.BuiltinEventEngine
	booted chan struct{}
}

func (h *asker) OnBoot(gnet.Engine) gnet.Action {
	close(h.booted)
	return gnet.None
}

func (*asker) OnIdle(c gnet.Conn, ev idle.Event) gnet.Action {
	if ev.First {
		_, _ = c.Write([]byte("are you there?\n"))
		return gnet.None
	}
	return gnet.Close
}

func (*asker) OnClose(_ gnet.Conn, err error) gnet.Action {
	fmt.Println("closed, read idle:", errors.Is(err, idle.ErrReadIdle))
	return gnet.Shutdown
}

func ExampleIdleHandler() {
	h := &asker{booted: make(chan struct{})}
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: 200 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "idle")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	done := make(chan error)
	go func() { done <- gnet.Run(reaper, "unix://"+dir+"/sock", gnet.WithLogger(silentLog{})) }()
	<-h.booted
	c, err := net.Dial("unix", dir+"/sock")
	if err != nil {
		log.Fatal(err)
	}
	question := make([]byte, 64)
	n, _ := c.Read(question)
	fmt.Printf("%s", question[:n])
	<-done // silent it stays
	// Output:
	// are you there?
	// closed, read idle: true
}

// A gateway for devices that negotiate their keep-alive, as MQTT does.
func ExampleReaper_SetTimeouts() {
	h := &gateway{}
	reaper, err := idle.Middleware(h, idle.Config{
		HandshakeTimeout:  10 * time.Second, // until MarkReady
		ReadTimeout:       time.Minute,      // of those that ask for nothing else
		WriteStallTimeout: 30 * time.Second,
		OutputLimit:       idle.OutputLimit{Hard: 8 << 20},
		Jitter:            0.1,
	})
	if err != nil {
		log.Fatal(err)
	}
	h.reaper = reaper
	log.Fatal(gnet.Run(reaper, "tcp://:1883", gnet.WithMulticore(true)))
}

type gateway struct {
	gnet.BuiltinEventEngine
	reaper *idle.Reaper
}

func (h *gateway) OnTraffic(c gnet.Conn) gnet.Action {
	keepAlive, ok := parseConnect(c)
	if !ok {
		return gnet.None // there is more to come
	}
	h.reaper.MarkReady(c)
	if err := h.reaper.SetTimeouts(c, idle.Timeouts{Read: keepAlive * 3 / 2}); err != nil {
		return gnet.Close // it has asked for something absurd
	}
	return gnet.None
}

func parseConnect(c gnet.Conn) (keepAlive time.Duration, ok bool) {
	b, _ := c.Next(-1)
	return 20 * time.Second, len(b) > 0
}

// A server that asks silent clients whether they are alive: after a minute of silence three times, 30 seconds apart.
func ExampleHeartbeat() {
	reaper, err := idle.Middleware(&handler{}, idle.Config{Heartbeat: idle.Heartbeat{
		Interval: 60 * time.Second, Retry: 30 * time.Second, MaxMissed: 3,
		Ping: func(gnet.Conn) []byte { return []byte("PING\n") },
	}})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(gnet.Run(reaper, "tcp://:9000"))
}

type silentLog struct{}

func (silentLog) Debugf(string, ...any) {}
func (silentLog) Infof(string, ...any)  {}
func (silentLog) Warnf(string, ...any)  {}
func (silentLog) Errorf(string, ...any) {}
func (silentLog) Fatalf(string, ...any) {}
