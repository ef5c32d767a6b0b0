package idle_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/reap"
)

// handler is the handler of the README.
type handler struct{ gnet.BuiltinEventEngine }

func (*handler) OnTraffic(c gnet.Conn) gnet.Action {
	msg, _ := c.Next(-1)
	c.Write(msg)
	return gnet.None
}

func (*handler) OnClose(c gnet.Conn, err error) gnet.Action {
	if errors.Is(err, reap.ReadIdle) {
		log.Printf("%v: %v", c.RemoteAddr(), err)
	}
	return gnet.None
}

// An echo server that closes connections after a minute of silence.
func Example() {
	reaper, err := idle.Middleware(&handler{}, idle.Config{ReadTimeout: 60 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(gnet.Run(reaper, "tcp://:9000", gnet.WithMulticore(true), gnet.WithReuseAddr(true)))
}

// An error names every field that is wrong.
func ExampleMiddleware_badConfig() {
	_, err := idle.Middleware(&handler{}, idle.Config{
		ReadTimeout: -time.Second,
		Jitter:      2,
	})
	fmt.Println(err)
	// Output:
	// idle: Config.ReadTimeout is -1s: set a positive duration such as 60s, or 0 for none
	// idle: Config.Jitter is 2: set at most 1
}

// A histogram of the lateness of reaped connections. The last bucket has no bound.
func ExampleLatenessStats() {
	late := idle.LatenessStats{ // of Reaper.Stats
		Bounds:  []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond},
		Buckets: []uint64{0, 7, 1, 0},
	}
	for i, bound := range late.Bounds {
		if n := late.Buckets[i]; n > 0 {
			fmt.Println(n, "reaped up to", bound, "late")
		}
	}
	// Output:
	// 7 reaped up to 10ms late
	// 1 reaped up to 100ms late
}

// The error that OnClose gets says why the connection was closed.
func ExampleReapError() {
	onClose := func(err error) {
		var reason *idle.ReapError
		reaped := errors.As(err, &reason)
		switch {
		case !reaped:
			fmt.Println("closed by the peer or the handler:", err)
		case errors.Is(err, reap.WriteStall), errors.Is(err, reap.OverLimit):
			fmt.Println("slow:", reason)
		default:
			fmt.Println(reason.Reason, "after", reason.Lasted, "timeout:", reason.Timeout())
		}
	}
	onClose(io.EOF)
	onClose(&idle.ReapError{Package: "idle", Reason: reap.ReadIdle, Limit: time.Minute, Lasted: 60100 * time.Millisecond})
	onClose(&idle.ReapError{Package: "idle", Reason: reap.OverLimit, Bytes: 9 << 20, LimitBytes: 8 << 20})
	// Output:
	// closed by the peer or the handler: EOF
	// read idle after 1m0.1s timeout: true
	// slow: idle: connection reaped: over limit: 9437184 bytes of output wait, limit 8388608
}

// The numbers of a Stats for each reason.
func ExampleCounts() {
	s := idle.Stats{Reaped: idle.Counts{reap.ReadIdle: 3, reap.Shed: 1}} // of Reaper.Stats
	fmt.Println(s.Reaped.Total(), "reaped,", s.Reaped[reap.ReadIdle], "of them", reap.ReadIdle)
	// Output:
	// 4 reaped, 3 of them read idle
}
