package idle

import (
	"sync"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/watch"
)

// A published is the copy of a loop's counters for other goroutines. It is made once per tick: an
// atomic addition per message would cost as much as the rest of a heartbeat.
type published struct {
	at mono.Stamp // of the copy; owned by the loop goroutine

	mu    sync.Mutex
	stats watch.Counters // guarded by mu
}

func (p *published) store(c *watch.Counters, now mono.Stamp) {
	p.at = now
	p.mu.Lock()
	p.stats = *c
	p.mu.Unlock()
}

func (p *published) read() *watch.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return new(p.stats)
}
