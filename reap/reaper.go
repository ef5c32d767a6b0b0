package reap

import (
	"context"
	"errors"
	"time"
)

// ErrNotWatched is, behind the name of the package, the error for a connection that the reaper does
// not watch.
var ErrNotWatched = errors.New("the connection is not watched")

// ErrBadConnID is, behind the name of the package, the error of Kick for a text that is not a
// ConnID.
var ErrBadConnID = errors.New("not the ID of a connection, such as 1-23-456")

// A Reaper is what packages metrics and admin show of a server: a *idle.Reaper or a
// *idlenet.Listener. Safe for concurrent use.
type Reaper interface {
	Stats() Stats
	Connections() int // open now
	Inspect(ctx context.Context, q Query) (Inspection, error)
	Kick(ctx context.Context, id ConnID) error

	// Limits returns the present Config by the names of its settings, which docs/settings.md
	// lists. Durations are texts such as 1m30s.
	Limits() map[string]any
	// Adjust changes the timeouts with these names. The error joins all that is wrong; then nothing
	// is changed.
	Adjust(timeouts map[string]time.Duration) error
}
