package idlenet

import (
	"os"
	"sync"
	"time"
)

// A lull lets the living be served while many connections end together. The Go runtime asks the
// kernel for input only when no goroutine is ready to run, or after 10 ms, and each end makes a
// goroutine of the server ready. So a lull waits for input itself, for that of a pipe: it is over
// when the ends before it are, and what came in meanwhile is known. The driver owns it.
type lull struct{ in, out *os.File }

// wait waits for a byte through the pipe. If there are no descriptors for it, it sleeps.
func (l *lull) wait() {
	if l.in == nil {
		var err error
		if l.in, l.out, err = os.Pipe(); err != nil {
			time.Sleep(time.Millisecond)
			return
		}
	}
	var sending sync.WaitGroup
	sending.Go(func() { _, _ = l.out.Write([]byte{0}) }) // usually when wait waits
	_, _ = l.in.Read(make([]byte, 1))
	sending.Wait()
}

// close gives the descriptors back.
func (l *lull) close() {
	if l.in != nil {
		_, _ = l.in.Close(), l.out.Close()
		*l = lull{}
	}
}
