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

// A peer that sends a message byte by byte holds a connection and never idles. Between messages it may be silent.
func ExampleReaper_BeginMessage() {
	h := newApp()
	reaper, err := idle.Middleware(h, idle.Config{
		MinRate: idle.MinRate{BytesPerSecond: 100, Window: 200 * time.Millisecond},
	})
	if err != nil {
		log.Fatal(err)
	}
	h.traffic = func(c gnet.Conn, part string) gnet.Action {
		begun := c.Context() != nil
		switch {
		case strings.HasSuffix(part, "\n"):
			reaper.EndMessage(c)
			c.SetContext(nil)
			_, _ = c.Write([]byte("ok\n"))
		case !begun:
			reaper.BeginMessage(c) // once, since each call begins anew
			c.SetContext("begun")
		}
		return gnet.None
	}
	addr, stop := serve(reaper, h)
	defer stop()

	c := connect(addr)
	defer c.Close()
	fmt.Fprint(c, "a whole message\n")
	fmt.Print(read(c, "ok\n"))
	fmt.Fprint(c, "G") // and nothing more
	fmt.Println(errors.Is(<-h.closed, idle.BelowMinRate))
	// Output:
	// ok
	// true
}
