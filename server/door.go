package server

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// A rejection is why a door does not let a connection in.
type rejection int

const (
	tooManyOfSource rejection = iota
	acceptRate
	noDescriptors
	rejections
)

// A door lets connections in by their source and by how many come. Safe for concurrent use.
type door struct {
	sources *Sources // nil if they are not limited
	rate    int      // of all, 0 for any
	log     *slog.Logger

	rejected [rejections]atomic.Uint64

	mu     sync.Mutex
	all    source      // guarded by mu; the bucket of all together
	unsaid int         // guarded by mu; rejections that were not logged yet
	last   string      // guarded by mu; why the last of them was
	saying *time.Timer // guarded by mu; logs them; nil if there are none
}

func newDoor(cfg Config) (*door, error) {
	d := &door{rate: cfg.AcceptRate, log: cfg.Logger}
	if !cfg.Sources.isSet() {
		return d, nil
	}
	var err error
	d.sources, err = NewSources(cfg.Sources)
	return d, err
}

// outside is the Context of a connection that was not let in, between OnOpen and OnClose, which gnet calls right after.
type outside struct{}

// admit reports whether a connection is let in.
func (d *door) admit(c gnet.Conn) bool {
	if d.sources == nil && d.rate == 0 {
		return true
	}
	now := time.Now()
	reason, why := acceptRate, "more connections than the accept rate"
	var err error
	if d.sources != nil { // first, so that one source does not use up the rate of all
		err = d.sources.admit(addrOf(c), now)
	}
	switch {
	case err != nil:
		reason, why = tooManyOfSource, err.Error()
	case d.inTime(now):
		return true
	case d.sources != nil:
		d.sources.Release(addrOf(c))
	}
	d.turnAway(c, reason, why)
	return false
}

// turnAway marks a connection as not let in. The caller closes it.
func (d *door) turnAway(c gnet.Conn, reason rejection, why string) {
	c.SetContext(outside{})
	d.rejected[reason].Add(1)
	d.say(why)
}

// inTime takes a token of the bucket of all.
func (d *door) inTime(now time.Time) bool {
	if d.rate == 0 {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	burst := 2 * float64(d.rate)
	if d.all.filled.IsZero() {
		d.all.tokens = burst
	} else {
		d.all.tokens = min(d.all.tokens+now.Sub(d.all.filled).Seconds()*float64(d.rate), burst)
	}
	d.all.filled = now
	if d.all.tokens < 1 {
		return false
	}
	d.all.tokens--
	return true
}

// say has a rejection logged, together with those of a second.
func (d *door) say(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsaid++
	d.last = why
	if d.saying == nil {
		d.saying = time.AfterFunc(warnEvery, d.sayAll)
	}
}

// sayAll logs the rejections that were not logged yet.
func (d *door) sayAll() {
	d.mu.Lock()
	n, last := d.unsaid, d.last
	if d.saying != nil {
		d.saying.Stop()
	}
	d.unsaid, d.saying = 0, nil
	d.mu.Unlock()
	if n > 0 {
		d.log.Warn("connections were not let in", "number", n, "last", last)
	}
}

// leave reports whether a connection that is closed was let in.
func (d *door) leave(c gnet.Conn) bool {
	if c.Context() == (outside{}) {
		return false
	}
	if d.sources != nil {
		d.sources.Release(addrOf(c))
	}
	return true
}

// addrOf returns the address that a connection comes from, the zero one for a unix socket.
func addrOf(c gnet.Conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(tcp.IP)
	return addr
}
