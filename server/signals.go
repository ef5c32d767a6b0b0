package server

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Signals returns a context for Run that is done when somebody asks the process to stop (SIGINT or SIGTERM), and a channel for
// Config.StopNow that is closed when he asks again. The caller calls stop, after which such a signal ends the process again.
func Signals(parent context.Context) (ctx context.Context, again <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2) // the second may come before the first is taken
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	asked, over := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, do := range []func(){cancel, func() { close(asked) }} {
			select {
			case <-signals:
				do()
			case <-over:
				return
			}
		}
	}()
	return ctx, asked, func() {
		signal.Stop(signals)
		close(over)
		<-ended
		cancel()
	}
}
