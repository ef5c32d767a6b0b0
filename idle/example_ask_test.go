package idle_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// asker stops its server when a connection is closed.
type asker struct {
	gnet.BuiltinEventEngine
	booted chan bool
}

func (a *asker) OnBoot(gnet.Engine) gnet.Action {
	close(a.booted)
	return gnet.None
}

// askFirst asks a silent peer, and gives it one more timeout to answer.
func askFirst(c gnet.Conn, ev idle.Event) gnet.Action {
	if ev.First {
		_, _ = c.Write([]byte("are you there?\n"))
		return gnet.None
	}
	return gnet.Close // OnClose gets the reason
}

func (*asker) OnClose(_ gnet.Conn, err error) gnet.Action {
	fmt.Println("closed, read idle:", errors.Is(err, idle.ReadIdle))
	return gnet.Shutdown
}

type silentLog struct{}

func (silentLog) Debugf(string, ...any) {}
func (silentLog) Infof(string, ...any)  {}
func (silentLog) Warnf(string, ...any)  {}
func (silentLog) Errorf(string, ...any) {}
func (silentLog) Fatalf(string, ...any) {}

// A handler decides whether idle connections are closed.
func ExampleConfig_onIdle() {
	h := &asker{booted: make(chan bool)}
	reaper, err := idle.Middleware(h, idle.Config{ReadTimeout: 100 * time.Millisecond, OnIdle: askFirst})
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "idle")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "sock")
	ended := make(chan error)
	go func() { ended <- gnet.Run(reaper, "unix://"+socket, gnet.WithLogger(silentLog{})) }()
	<-h.booted

	c, err := net.Dial("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	heard, _ := io.ReadAll(c) // and sends nothing
	fmt.Printf("%s", heard)
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// are you there?
	// closed, read idle: true
}
