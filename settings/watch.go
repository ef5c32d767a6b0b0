package settings

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/idlenet"
)

// ErrNoFile is reported for SIGHUP when the Source has no file, so that there is nothing to read
// again.
var ErrNoFile = errors.New("settings: there is no file of limits to read again")

// A Watcher reads the settings again on SIGHUP.
type Watcher[C idle.Config | idlenet.Config] struct {
	source  *Source[C]
	read    func() (C, error) // of the source
	signals chan os.Signal
}

// Watch catches SIGHUP from now on, so that it does not end the process. Call it before anything
// that takes time. A SIGHUP that arrives before [Watcher.Run] is handled when Run begins. The
// caller calls Stop.
func (s *Source[C]) Watch() *Watcher[C] {
	w := &Watcher[C]{source: s, read: s.read, signals: make(chan os.Signal, 1)}
	signal.Notify(w.signals, syscall.SIGHUP)
	return w
}

// Stop ends what Watch began: SIGHUP ends the process again. Safe for concurrent use. It may be
// called more than once.
func (w *Watcher[C]) Stop() { signal.Stop(w.signals) }

// Run handles each SIGHUP until ctx is done. It reads the file, and calls update with a func that
// sets the new values, as [idle.Reaper.Update] and [idlenet.Reaper.Update] take it. Then it calls
// report: with nil if the new values are in force, otherwise with the error that kept the old ones.
// Both are called on the goroutine of Run.
//
// A read that takes longer than 5 seconds, as on a network file system that does not answer, is
// reported as an error. Run returns when ctx is done even if a read hangs. The goroutine that reads
// ends with the read, and its values are dropped.
func (w *Watcher[C]) Run(ctx context.Context, update func(edit func(*C)) error, report func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signals:
		}
		values, err := w.readUntil(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = update(func(cfg *C) { w.source.set(cfg, values) })
		}
		report(err)
	}
}

// readUntil reads the settings, or returns when ctx is done or the time is up.
func (w *Watcher[C]) readUntil(ctx context.Context) (values C, err error) {
	if w.source.File == "" {
		return values, ErrNoFile
	}
	return bounded(ctx, w.source.File, w.read)
}
