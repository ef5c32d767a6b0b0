package idle_test

import (
	"context"
	"io"
	"log"
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

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
	if err != nil {
		log.Fatal(err)
	}
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

// serve runs a server on a free port of this host until stop is called.
func serve(reaper *idle.Reaper, a *app) (addr string, stop func()) {
	running, ended := context.WithCancel(context.Background())
	go func() {
		defer ended()
		if err := gnet.Run(reaper, "tcp://127.0.0.1:0", gnet.WithLogger(silentLog{})); err != nil {
			log.Fatal(err)
		}
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
	if err != nil {
		log.Fatal(err)
	}
	read(c, "hello\n")
	return c
}

// read reads the expected bytes.
func read(c net.Conn, want string) string {
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		log.Fatalf("read %q, %v, want %q", b, err, want)
	}
	return want
}
