package server

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// ErrTooFewDescriptors is returned by Run when the process may not open enough files for a server that survives a flood of
// connections. The error text has the numbers.
var ErrTooFewDescriptors = errors.New("too few file descriptors")

const (
	// reserve is how many descriptors are left for what is no connection: log files, name resolution, a profile.
	reserve = 64
	// fewest is the smallest number of connections that a server is started for.
	fewest = 16
)

// A budget is how the descriptors that the process may have are shared out.
type budget struct {
	allowed int // descriptors of the process; 0 if not known
	inUse   int // before the server starts
	loops   int // event loops
	admin   int // connections that the admin listener may have
	backlog int // connections that the acceptor may take before a loop hears of them; 0 if each loop accepts its own
	wanted  int // Config.MaxConnections
}

// connections returns for how many connections there is room, and why; 0 if any number.
func (b budget) connections() (n int, why string, err error) {
	if b.allowed == 0 {
		return b.wanted, "as configured", nil
	}
	n = b.allowed - b.inUse - b.engine() - reserve - b.backlog
	if least := min(fewest, cmp.Or(b.wanted, fewest)); n < least {
		return 0, "", fmt.Errorf("server: %w: %s leaves %d for connections, of at least %d: raise the limit to %d (ulimit -n, LimitNOFILE)%s",
			ErrTooFewDescriptors, b, max(n, 0), least, b.allowed-n+cmp.Or(b.wanted, fewest), b.advice())
	}
	if b.wanted > 0 && b.wanted <= n {
		return b.wanted, "as configured", nil
	}
	return n, b.String(), nil
}

// engine returns how many descriptors gnet needs, a poller, its wake-up and a listener for each loop, and the admin listener.
func (b budget) engine() int { return 4*(b.loops+1) + b.admin }

func (b budget) String() string {
	s := fmt.Sprintf("%d descriptors allowed, less %d in use, %d for the engine and %d in reserve", b.allowed, b.inUse, b.engine(), reserve)
	if b.backlog > 0 {
		s += fmt.Sprintf(" and %d that may be accepted before they can be refused (net.core.somaxconn)", b.backlog)
	}
	return s
}

func (b budget) advice() string {
	if b.backlog == 0 {
		return ""
	}
	return ", lower net.core.somaxconn, or let each event loop accept its own connections (leave OneAcceptor off)"
}

// plan finds out for how many connections there is room.
func (cfg *Config) plan(oneAcceptor bool) (b budget, n int, why string, err error) {
	b = budget{wanted: cfg.MaxConnections, loops: cfg.Loops}
	if b.allowed, err = raiseDescriptors(); err != nil {
		return b, 0, "", err
	}
	if cfg.Admin.Addr != "" {
		b.admin = adminConns + 1
	}
	if b.allowed > 0 {
		b.inUse = descriptorsInUse()
		if oneAcceptor {
			b.backlog = maxBacklog()
		}
	}
	if n, why, err = b.connections(); err != nil {
		return b, 0, "", err
	}
	if n < cfg.MaxConnections {
		cfg.Logger.Warn("fewer connections than configured", "limit", n, "because", why)
	}
	return b, n, why, nil
}

// look returns how often is to be looked whether descriptors run short. An acceptor does not wait for the loops, and takes tens of
// thousands in a second.
func (b budget) look() time.Duration {
	if b.backlog > 0 {
		return 2 * time.Millisecond
	}
	return gateLook
}

// full returns the descriptor from which on accepting is paused, whoever uses those below it; 0 if that is not known.
func (b budget) full() int {
	if b.allowed == 0 {
		return 0
	}
	return b.allowed - reserve/2 - b.admin - b.loops - b.backlog // each loop may be accepting one
}
