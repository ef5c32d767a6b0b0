package idlenet

import (
	"net"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

const (
	// reasonKept is how long the reason of a closed connection is kept.
	reasonKept = time.Minute
	// reasonsAtMost is the number of reasons that a Reaper keeps: 18 MB with their connections.
	reasonsAtMost = 1 << 15
)

// Reasons are why closed connections of a shard have ended. Their connections are kept as well, so
// that no other one gets the address of one. Not safe for concurrent use.
type reasons struct {
	most  int                     // of them
	all   map[uintptr]*keptReason // by the address of the socket
	order []*keptReason           // the oldest first
}

type keptReason struct {
	addr   uintptr
	kept   net.Conn
	reason *ReapError
	until  mono.Time
}

func (r *reasons) add(n *conn, reason *ReapError, now mono.Time) {
	one := &keptReason{address(n.Front.own()), n.Front.kept, reason, now.Add(reasonKept)}
	r.all[one.addr] = one
	if r.order = append(r.order, one); len(r.order) > r.most {
		r.drop()
	}
}

// drop drops the oldest reason.
func (r *reasons) drop() {
	oldest := r.order[0]
	r.order[0] = nil
	r.order = r.order[1:]
	if r.all[oldest.addr] == oldest { // its engine has not used the object again
		delete(r.all, oldest.addr)
	}
}

// expire drops the reasons that were kept for long enough. It reports whether some are left.
func (r *reasons) expire(now mono.Time) bool {
	for len(r.order) > 0 && r.order[0].until <= now {
		r.drop()
	}
	return len(r.order) > 0
}

// of returns the reason of the connection with a socket at an address, or nil.
func (r *reasons) of(addr uintptr) *ReapError {
	if one := r.all[addr]; one != nil {
		return one.reason
	}
	return nil
}
