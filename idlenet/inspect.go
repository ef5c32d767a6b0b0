package idlenet

import (
	"context"
	"net"

	"github.com/idlewheel/idlewheel/internal/watch"
)

// ID returns the name of a connection for [Listener.Kick] and logs. It is empty if the Listener
// does not watch the connection.
func (l *Listener) ID(c net.Conn) (id ConnID) {
	l.with(c, func(s *shard, number uint32, n *conn) { id = s.Shard.ID(number, n) })
	return id
}

// Inspect looks at the connections, and changes nothing. There is a ring for each part of the
// connections, one per processor. A connection that opens or closes meanwhile may be missing. The
// error is that of ctx if ctx ends first, or says what is wrong with the Query.
func (l *Listener) Inspect(ctx context.Context, q Query) (Inspection, error) {
	i, err := l.watch.NewInspector(q)
	if err != nil {
		return Inspection{}, err
	}
	for _, s := range l.shards {
		for next, more := uint32(0), true; more; {
			if err := ctx.Err(); err != nil {
				return watch.Failed(), err
			}
			s.locked(func() { next, more = s.Inspect(next, i) })
		}
	}
	return i.Result(), nil
}

// Kick ends a connection, held and observed ones too, with the reason reap.Kicked. The error is
// [ErrNotWatched] if there is no such connection any more, or [ErrBadConnID] if id is not written
// like one. The context is not used.
func (l *Listener) Kick(_ context.Context, id ConnID) error {
	err := l.watch.Kick(id, func(shard, number, opened uint32) (found bool, _ error) {
		if shard > 0 && int(shard) <= len(l.shards) {
			s := l.shards[shard-1]
			s.locked(func() { found = s.Kick(number, opened) })
		}
		return found, nil
	})
	l.watch.Wake()
	return err
}
