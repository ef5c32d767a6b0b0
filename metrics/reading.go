package metrics

import (
	"context"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// loopTimeout bounds the time that a scrape waits for event loops. Prometheus waits ten seconds for
// a scrape.
const loopTimeout = time.Second

// A reading is what one scrape reads from the Reaper.
type reading struct {
	stats   reap.Stats
	limit   int            // of connections, 0 if there is none
	states  map[string]int // connections by state
	unknown int            // connections of unknown state
	overdue int            // entries that are due and not yet checked

	silences reap.Silences // without connections after an error
}

// read reads the Reaper. If an event loop does not answer in time, the state of all connections is
// unknown, because a partial count would be wrong.
func read(r reap.Reaper) (in reading) {
	ctx, cancel := context.WithTimeout(context.Background(), loopTimeout)
	defer cancel()
	// Before Stats: the loops publish their counters with it.
	found, err := r.Inspect(ctx, reap.Query{States: true, Silences: true})
	if err != nil {
		in.unknown = r.Connections()
	}
	in.silences = found.Silences
	in.states, in.overdue = found.States, found.Overdue
	in.stats = r.Stats()
	in.limit, _ = r.Limits()["max-connections"].(int)
	return in
}
