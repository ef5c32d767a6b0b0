// Package engine runs engines of gnet for tests.
package engine

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience is longer than an engine needs to boot or to stop.
const patience = 20 * time.Second

// A Boot is an engine that has booted, and its address.
type Boot struct {
	Engine gnet.Engine
	Addr   net.Addr
}

// NewBoot returns the Boot of an engine. It must be called in OnBoot.
func NewBoot(eng gnet.Engine) Boot { return Boot{eng, Addr(eng)} }

// Serve runs an engine around a handler until the test ends, and returns its address. The OnBoot of
// the handler sends a Boot. The engine has two event loops unless an option says otherwise.
func Serve(t testing.TB, h gnet.EventHandler, booted <-chan Boot, addr string, opts ...gnet.Option) net.Addr {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		done <- gnet.Run(h, addr, append([]gnet.Option{gnet.WithLogger(Quiet{}), gnet.WithNumEventLoop(2)}, opts...)...)
	}()
	var up Boot
	select {
	case up = <-booted:
	case err := <-done:
		t.Fatalf("gnet.Run returned: %v", err)
	case <-time.After(patience):
		t.Fatalf("the engine did not boot within %v", patience)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := up.Engine.Stop(ctx)
		assert.False(t, err != nil && up.Engine.Validate() == nil, "stopping the engine: %v", err)
		select {
		case err := <-done:
			assert.NoError(t, err, "gnet.Run")
		case <-ctx.Done():
			t.Errorf("gnet.Run did not return within %v", patience)
		}
	})
	require.NotNil(t, up.Addr)
	return up.Addr
}

// Addr returns the address of an engine with its port, nil for a client or after an error. It must
// be called in OnBoot, because gnet does not synchronize access to its listeners.
func Addr(eng gnet.Engine) net.Addr {
	fd, err := eng.Dup()
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	if ln, err := net.FileListener(f); err == nil {
		defer ln.Close()
		return ln.Addr()
	}
	pc, err := net.FilePacketConn(f)
	if err != nil {
		return nil
	}
	defer pc.Close()
	return pc.LocalAddr()
}

// Quiet is a logger of gnet that discards everything.
type Quiet struct{}

// Debugf discards a record.
func (Quiet) Debugf(string, ...any) {}

// Infof discards a record.
func (Quiet) Infof(string, ...any) {}

// Warnf discards a record.
func (Quiet) Warnf(string, ...any) {}

// Errorf discards a record.
func (Quiet) Errorf(string, ...any) {}

// Fatalf discards a record. It does not end the process.
func (Quiet) Fatalf(string, ...any) {}
