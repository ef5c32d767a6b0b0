package server

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/idlewheel/idlewheel/admin"
)

// ErrTooFewDescriptors is returned by Run when the process may not open enough files for a server
// that survives a flood of connections. The error text has the numbers.
var ErrTooFewDescriptors = errors.New("server: too few file descriptors")

const (
	// reserve is the number of descriptors that are left for other files: logs, name resolution, a
	// profile.
	reserve = 64
	// minConnections is the smallest number of connections that a server is started for.
	minConnections = 16
	// acceptorsPerLoop is the number of goroutines that accept for each event loop and listener.
	// While the loop opens the connection of one of them, the others accept.
	acceptorsPerLoop = 2
)

// A budget divides the descriptors that the process may have.
type budget struct {
	allowed   int // descriptors of the process; 0 if not known
	inUse     int // before the server starts
	loops     int // event loops
	listeners int // at least one
	admin     int // connections that the admin listener may have
	wanted    int // Config.Idle.MaxConnections
}

func newBudget(cfg *Config, listeners int) budget {
	b := budget{
		allowed: descriptorLimit(), inUse: descriptorsInUse(),
		loops: cfg.NumEventLoop, listeners: listeners, wanted: cfg.Idle.MaxConnections,
	}
	if cfg.Admin.Addr != "" {
		b.admin = admin.MaxConnections + 1
	}
	return b
}

// connections returns the number of connections that there is room for at the start, 0 if there is
// no limit.
func (b budget) connections() (n int, err error) {
	if b.allowed == 0 {
		return b.wanted, nil
	}
	n = b.most()
	if least := min(minConnections, cmp.Or(b.wanted, minConnections)); n < least {
		return 0, fmt.Errorf("%w: %s leaves %d for connections, of at least %d: raise the limit to %d (ulimit -n, LimitNOFILE)",
			ErrTooFewDescriptors, b, max(n, 0), least, b.allowed-n+cmp.Or(b.wanted, minConnections))
	}
	if b.wanted > 0 {
		n = min(n, b.wanted)
	}
	return n, nil
}

// most returns the number of connections that there are descriptors for, 0 if it is not known.
func (b budget) most() int {
	if b.allowed == 0 {
		return 0
	}
	return b.allowed - b.inUse - b.engine() - reserve
}

// bound returns a limit of connections within those that there are descriptors for. 0 is none.
func (b budget) bound(limit int) int {
	if most := b.most(); most > 0 {
		return min(cmp.Or(limit, most), most)
	}
	return limit
}

// why returns the reason why a limit of connections is not higher.
func (b budget) why(limit int) string {
	if limit > 0 && limit == b.most() {
		return b.String()
	}
	return "as configured"
}

// engine returns the number of descriptors that the event loops, the acceptors and the admin
// listener need. An event loop has a poller, its wake-up and a spare one.
func (b budget) engine() int { return 3*b.loops + b.arriving() + b.admin }

// arriving returns the number of descriptors of connections that are not open yet. Each acceptor
// may have one, and gnet duplicates it.
func (b budget) arriving() int { return 2 * acceptorsPerLoop * b.loops * b.listeners }

func (b budget) String() string {
	return fmt.Sprintf("%d descriptors allowed, less %d in use, %d for the engine and %d in reserve", b.allowed, b.inUse, b.engine(), reserve)
}

// full returns the descriptor at which accepting is paused, no matter what the lower ones are used
// for; math.MaxInt if it is not known.
func (b budget) full() int {
	if b.allowed == 0 {
		return math.MaxInt
	}
	return b.allowed - reserve/2 - b.admin - b.arriving()
}
