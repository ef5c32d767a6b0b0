package logging

import "log/slog"

// Mute returns a Logger that loses its records and remembers l. An Update that sets it changes
// settings without a record, and keeps l.
func Mute(l *slog.Logger) *slog.Logger { return slog.New(muted{slog.DiscardHandler, l}) }

// Unmute returns the Logger that Mute was called with, and true. It returns other Loggers
// themselves.
func Unmute(l *slog.Logger) (loud *slog.Logger, isMuted bool) {
	if l == nil {
		return nil, false
	}
	if h, ok := l.Handler().(muted); ok {
		return h.loud, true
	}
	return l, false
}

// A muted handler is that of a Logger of Mute.
type muted struct {
	slog.Handler
	loud *slog.Logger
}
