package watch

import (
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// An End is what is known of a connection that was ended and is not closed yet.
type End struct {
	Reason  *reap.Error
	Told    mono.Time // the server was told to close the connection
	CloseAt mono.Time // the front end closes it then, or later after an outage
	Closed  bool      // it was found closed
}

// Ends are the connections of a Shard that were ended and are not closed yet, by number. Not safe
// for concurrent use.
type Ends struct {
	watcher *Watcher
	all     map[uint32]*End
}

func (e *Ends) init(w *Watcher) { e.watcher, e.all = w, make(map[uint32]*End) }

// Of returns the End of a connection, nil if it has none.
func (e *Ends) Of(id uint32) *End {
	if len(e.all) == 0 {
		return nil
	}
	return e.all[id]
}

// Len returns the number of connections.
func (e *Ends) Len() int { return len(e.all) }

// Add adds a connection. It says whether the connection was observed before.
func (e *Ends) Add(id uint32, observed bool, reason *reap.Error) *End {
	if !observed { // otherwise it is counted already
		e.watcher.Decided.Add(1)
	}
	end := &End{Reason: reason, CloseAt: verdict.Never}
	e.all[id] = end
	return end
}

// Undo takes Add back, for a connection that could not be closed.
func (e *Ends) Undo(id uint32, observed bool) {
	delete(e.all, id)
	if !observed {
		e.watcher.Decided.Add(-1)
	}
}
