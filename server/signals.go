package server

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// SecondSignal returns a channel for Config.StopNow that is closed when somebody asks the process to stop (SIGINT or SIGTERM) after ctx is
// done, and a function to call when Run has returned. ctx is that of [signal.NotifyContext], so that the first signal begins a drain and
// the second ends it.
func SecondSignal(ctx context.Context) (again <-chan struct{}, done func()) {
	asked, over := make(chan struct{}), make(chan struct{})
	signals := make(chan os.Signal, 1)
	stop := context.AfterFunc(ctx, func() {
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(signals)
		select {
		case <-signals:
			close(asked)
		case <-over:
		}
	})
	return asked, func() {
		stop()
		close(over)
	}
}
