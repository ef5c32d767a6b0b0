package idle

import (
	"context"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/logging"
)

// handle returns the Conn of a connection, or a closed Conn if the connection is not watched.
func handle(r *Reaper, c gnet.Conn) Conn {
	conn, _ := r.Conn(c)
	return conn
}

// to returns an edit for Update that replaces the whole Config.
func to(cfg Config) func(*Config) { return func(c *Config) { *c = cfg } }

// setMax changes the limit of open connections.
func setMax(r *Reaper, n int) error {
	return r.Update(func(cfg *Config) { cfg.MaxConnections = n })
}

// list returns the first connections of an order.
func list(ctx context.Context, r *Reaper, by string, limit int) ([]ConnInfo, error) {
	found, err := r.Inspect(ctx, Query{By: by, Limit: limit})
	return found.Connections, err
}

// countStates counts the connections by state.
func countStates(ctx context.Context, r *Reaper) (Inspection, error) {
	return r.Inspect(ctx, Query{States: true})
}

// ringsOf returns the ring of each loop.
func ringsOf(ctx context.Context, r *Reaper, sectors int) ([]Ring, error) {
	found, err := r.Inspect(ctx, Query{Sectors: sectors})
	return found.Rings, err
}

// flushLog waits until the records of a Reaper are written.
func flushLog(r *Reaper) { logging.Of(r.Config().Logger).Flush() }
