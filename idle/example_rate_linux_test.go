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
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/server"
)

// A lineHandler answers lines.
type lineHandler struct {
	gnet.BuiltinEventEngine
	reaper *idle.Reaper
	closed chan error
}

func (h *lineHandler) OnTraffic(c gnet.Conn) gnet.Action {
	part, _ := c.Next(-1)
	conn, _ := h.reaper.Conn(c)
	if strings.HasSuffix(string(part), "\n") {
		conn.EndMessage()
		_, _ = c.Write([]byte("ok\n"))
	} else {
		conn.BeginMessage() // no effect if a message is open
	}
	return gnet.None
}

func (h *lineHandler) OnClose(_ gnet.Conn, err error) gnet.Action {
	h.closed <- err
	return gnet.None
}

// A peer that sends a message byte by byte is never idle, and is still closed. Between messages a
// peer may be silent.
func ExampleConn_BeginMessage() {
	h := &lineHandler{closed: make(chan error, 1)}
	started := make(chan net.Addr)
	s, err := server.New(server.Config{
		Addresses: []string{"127.0.0.1:0"},
		Handler:   h,
		Idle:      idle.Config{MinRate: idle.MinRate{BytesPerSecond: 100, Window: 200 * time.Millisecond}},
		OnStarted: func(s *server.Server) { started <- s.Addr() },
	})
	if err != nil {
		log.Fatal(err)
	}
	h.reaper = s.Reaper()
	go func() { _ = s.Run(context.Background()) }()
	defer s.Close()

	c, err := net.Dial("tcp", (<-started).String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "a whole message\n")
	answer := make([]byte, len("ok\n"))
	_, _ = io.ReadFull(c, answer)
	fmt.Printf("%s", answer)
	fmt.Fprint(c, "G") // the rest of the message never comes
	fmt.Println(errors.Is(<-h.closed, reap.BelowMinRate))
	// Output:
	// ok
	// true
}
