package idlenet

import (
	"context"

	"github.com/idlewheel/idlewheel/internal/watch"
)

// Inspect looks at the connections, and changes nothing. There is a ring for each part of the
// connections, one per processor. A connection that opens or closes meanwhile may be missing. The
// error is that of ctx if ctx ends first, or says what is wrong with the Query.
func (r *Reaper) Inspect(ctx context.Context, q Query) (Inspection, error) {
	i, err := r.watch.NewInspector(q)
	if err != nil {
		return Inspection{}, err
	}
	for _, s := range r.shards {
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
// [ErrNotWatched] if there is no such connection any more, or if it has ended already: its server
// keeps the rest of CloseGrace, so that a second call does not cut off the request in hand. It is
// [ErrBadConnID] if id is not written like one, or that of ctx if ctx has ended.
func (r *Reaper) Kick(ctx context.Context, id ConnID) error {
	return r.watch.Kick(ctx, id, func(shard, number, tag uint32) (found bool, _ error) {
		if shard > 0 && int(shard) <= len(r.shards) {
			s := r.shards[shard-1]
			s.locked(func() { found = number < s.Len() && s.isOpen(number) && s.Kick(number, tag) })
			r.watch.Wake()
		}
		return found, nil
	})
}
