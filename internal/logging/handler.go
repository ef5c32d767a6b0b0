package logging

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// Wrap returns a Logger that hands its records to a queue, or the Logger itself if it does so
// already. Loggers made by its With and WithGroup share the queue. If l is nil, warnings and errors
// go to slog.Default(), and nothing else is logged.
func Wrap(l *slog.Logger) *slog.Logger {
	if l == nil {
		l = slog.New(warnings{slog.Default().Handler()})
	}
	if Of(l) != nil {
		return l
	}
	h := &handler{Handler: l.Handler()}
	h.queue = &Queue{tell: h.warn}
	return slog.New(h)
}

// Of returns the queue of a Logger that Wrap has returned, nil for others.
func Of(l *slog.Logger) *Queue {
	if h, ok := l.Handler().(*handler); ok {
		return h.queue
	}
	return nil
}

// A handler is a slog.Handler that leaves the writing to a queue.
type handler struct {
	slog.Handler
	queue *Queue
}

// Handle resolves the values of a record, which may change soon, and adds it to the queue.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	kept := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		kept.AddAttrs(resolve(a))
		return true
	})
	h.queue.add(func() error { return h.Handler.Handle(ctx, kept) })
	return nil
}

// resolve calls the LogValuers of an attribute and of the groups in it.
func resolve(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() == slog.KindGroup {
		group := slices.Clone(a.Value.Group())
		for i := range group {
			group[i] = resolve(group[i])
		}
		a.Value = slog.GroupValue(group...)
	}
	return a
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.queue}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.queue}
}

// warn writes how many records were dropped. It is called by the goroutine of the queue.
func (h *handler) warn(dropped uint64) {
	ctx := context.Background()
	if h.Enabled(ctx, slog.LevelWarn) {
		r := slog.NewRecord(time.Now(), slog.LevelWarn, "log records were dropped: the reader of the log is too slow", 0)
		r.AddAttrs(slog.Uint64("number", dropped))
		_ = h.Handler.Handle(ctx, r)
	}
}

// A warnings handler drops records below the level warn.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
