package idle_test

import (
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// A peer that sends a message byte by byte is never idle, and is still closed. Between messages a
// peer may be silent.
func ExampleConn_BeginMessage() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{
		MinRate: idle.MinRate{BytesPerSecond: 100, Window: 200 * time.Millisecond},
	})
	if err != nil {
		log.Fatal(err)
	}
	h.traffic = func(c gnet.Conn, part string) gnet.Action {
		conn, _ := reaper.Conn(c)
		if strings.HasSuffix(part, "\n") {
			conn.EndMessage()
			_, _ = c.Write([]byte("ok\n"))
		} else {
			conn.BeginMessage() // no effect if a message is open
		}
		return gnet.None
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	fmt.Fprint(c, "a whole message\n")
	fmt.Print(read(c, "ok\n"))
	fmt.Fprint(c, "G") // the rest of the message never comes
	fmt.Println(errors.Is(<-h.closed, idle.BelowMinRate))
	// Output:
	// ok
	// true
}
