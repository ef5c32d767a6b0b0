// Package engine has what tests need of an engine of gnet.
package engine

import (
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"
)

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
