package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// engineLog is the logger that gnet gets. It keeps the last error, since gnet.Run does not return why an engine died.
type engineLog struct {
	*slog.Logger

	mu   sync.Mutex
	last string // guarded by mu
}

func (l *engineLog) logf(level slog.Level, format string, args []any) {
	if l.Enabled(context.Background(), level) {
		l.Log(context.Background(), level, fmt.Sprintf(format, args...), "from", "gnet")
	}
}

func (l *engineLog) Debugf(format string, args ...any) { l.logf(slog.LevelDebug, format, args) }
func (l *engineLog) Infof(format string, args ...any)  { l.logf(slog.LevelInfo, format, args) }
func (l *engineLog) Warnf(format string, args ...any)  { l.logf(slog.LevelWarn, format, args) }

func (l *engineLog) Errorf(format string, args ...any) {
	l.mu.Lock()
	l.last = cmp.Or(l.last, fmt.Sprintf(format, args...)) // the first is the cause, the others follow from it
	l.mu.Unlock()
	l.logf(slog.LevelError, format, args)
}

// Fatalf logs an error. It does not end the process: that is for its owner to decide.
func (l *engineLog) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

// lastError returns what gnet said about the end.
func (l *engineLog) lastError() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.last, "gnet does not say why")
}
