package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// keptErrors is the number of different lines in which gnet may explain the death of an engine: the
// cause and its consequences.
const keptErrors = 8

// loopExits is the start of what gnet logs when an event loop ends. gnet tells it in no other way.
const loopExits = "event-loop(%d) is exiting"

// An engineLog is the logger of gnet. It finds out from the log that an event loop has ended, and
// keeps the last errors: gnet returns neither.
type engineLog struct {
	*slog.Logger
	alive context.Context // done when an event loop has ended
	died  context.CancelFunc

	mu   sync.Mutex
	last []string // guarded by mu
}

func newEngineLog(log *slog.Logger) *engineLog {
	l := &engineLog{Logger: log}
	l.alive, l.died = context.WithCancel(context.Background())
	return l
}

func (l *engineLog) logf(level slog.Level, format string, args []any) {
	if strings.HasPrefix(format, loopExits) {
		l.died()
	}
	if l.Enabled(context.Background(), level) {
		l.Log(context.Background(), level, fmt.Sprintf(format, args...), "from", "gnet")
	}
}

func (l *engineLog) Debugf(format string, args ...any) { l.logf(slog.LevelDebug, format, args) }
func (l *engineLog) Infof(format string, args ...any)  { l.logf(slog.LevelDebug, format, args) }
func (l *engineLog) Warnf(format string, args ...any)  { l.logf(slog.LevelWarn, format, args) }

func (l *engineLog) Errorf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	l.mu.Lock()
	if !slices.Contains(l.last, line) {
		l.last = append(l.last, line)
		l.last = l.last[max(0, len(l.last)-keptErrors):]
	}
	l.mu.Unlock()
	l.logf(slog.LevelError, format, args)
}

// Fatalf logs an error. It does not end the process.
func (l *engineLog) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

// lastErrors returns what gnet has logged about the end.
func (l *engineLog) lastErrors() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(strings.Join(l.last, "; "), "gnet does not say why")
}
