package server

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// RunUntilSignal is Run until the process gets SIGINT or SIGTERM. The first signal stops the server
// as if ctx were done, and the second ends the drain, as Close does. A third signal ends the
// process, and so does a signal after RunUntilSignal has returned.
func (s *Server) RunUntilSignal(ctx context.Context) error {
	signals := make(chan os.Signal, 2) // the second may arrive before the first is received
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	returned := make(chan struct{})
	defer close(returned)
	go func() {
		defer signal.Stop(signals)
		for _, do := range []func(){cancel, s.cut} {
			select {
			case <-signals:
				do()
			case <-returned:
				return
			}
		}
	}()
	return s.Run(ctx)
}
