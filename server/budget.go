package server

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/admin"
	"github.com/idlewheel/idlewheel/server/internal/accept"
	"github.com/idlewheel/idlewheel/server/internal/descriptor"
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
)

// A budget divides the descriptors that the process may have.
type budget struct {
	allowed   int // descriptors of the process; 0 if not known
	inUse     int // before the server starts
	loops     int // event loops
	addresses int // to listen on; 0 counts as 1
	admin     int // connections that the admin listener may have
	backlog   int // connections that one acceptor may take before a loop sees them; else 0
	wanted    int // Config.Idle.MaxConnections
}

// newBudget raises the limit of descriptors and counts those in use.
func newBudget(cfg *Config, oneAcceptor bool) (b budget, err error) {
	b = budget{wanted: cfg.Idle.MaxConnections, loops: cfg.NumEventLoop, addresses: len(cfg.Addresses)}
	if b.allowed, err = descriptor.RaiseLimit(); err != nil {
		return b, fmt.Errorf("server: %w", err)
	}
	if cfg.Admin.Addr != "" {
		b.admin = admin.MaxConnections + 1
	}
	if b.allowed > 0 {
		b.inUse = descriptor.InUse()
		if oneAcceptor {
			b.backlog = accept.MaxBacklog() * len(cfg.Addresses)
		}
	}
	return b, nil
}

// connections returns the number of connections that there is room for, and the reason for it; 0 if
// there is no limit.
func (b budget) connections() (n int, why string, err error) {
	if b.allowed == 0 {
		return b.wanted, "as configured", nil
	}
	n = b.allowed - b.inUse - b.engine() - reserve - b.backlog
	if least := min(minConnections, cmp.Or(b.wanted, minConnections)); n < least {
		format := "%w: %s leaves %d for connections, of at least %d: raise the limit to %d (ulimit -n, LimitNOFILE)"
		args := []any{ErrTooFewDescriptors, b, max(n, 0), least, b.allowed - n + cmp.Or(b.wanted, minConnections)}
		if b.backlog > 0 {
			format += ", lower net.core.somaxconn, or let each event loop accept its own connections (leave %s off)"
			args = append(args, field("OneAcceptor"))
		}
		return 0, "", errorf(format, args...)
	}
	if b.wanted > 0 && b.wanted <= n {
		return b.wanted, "as configured", nil
	}
	return n, b.String(), nil
}

// engine returns the number of descriptors that gnet and the admin listener need. An event loop, as
// well as an acceptor, has a poller, its wake-up, a spare one, and a listener for each address.
func (b budget) engine() int { return (3+max(b.addresses, 1))*(b.loops+1) + b.admin }

func (b budget) String() string {
	s := fmt.Sprintf("%d descriptors allowed, less %d in use, %d for the engine and %d in reserve", b.allowed, b.inUse, b.engine(), reserve)
	if b.backlog > 0 {
		s += fmt.Sprintf(" and %d that may be accepted before they can be refused (net.core.somaxconn)", b.backlog)
	}
	return s
}

// pollInterval returns the interval at which the server checks whether descriptors run short. One
// acceptor does not wait for the loops, and accepts tens of thousands of connections per second.
func (b budget) pollInterval() time.Duration {
	if b.backlog > 0 {
		return 2 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// full returns the descriptor at which accepting is paused, no matter what the lower ones are used
// for; 0 if it is not known.
func (b budget) full() int {
	if b.allowed == 0 {
		return 0
	}
	// Each loop may be accepting one connection.
	return b.allowed - reserve/2 - b.admin - b.loops - b.backlog
}
