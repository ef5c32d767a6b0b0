package server

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/idlewheel/idlewheel/server/internal/listen"
)

// ErrBadAddress is returned by New for an address that no server could listen on, such as one
// without a port.
var ErrBadAddress = listen.ErrBadAddress

// checkAddresses checks what can be checked without a look-up of names.
func (cfg *Config) checkAddresses() error {
	const listed = field("Addresses")
	if strings.Join(cfg.Addresses, "") == "" && len(cfg.Listeners) == 0 {
		return errorf("%w: %s is not set: set it, for example to 127.0.0.1:7000", ErrBadAddress, listed)
	}
	var errs []error
	for i, addr := range cfg.Addresses {
		_, err := listen.Parse(addr)
		errs = append(errs, err)
		if slices.Contains(cfg.Addresses[:i], addr) && !strings.HasSuffix(addr, ":0") {
			errs = append(errs, errorf("%w: %s has %q twice", ErrBadAddress, listed, addr))
		}
	}
	if slices.Contains(cfg.Listeners, nil) {
		errs = append(errs, errors.New("server: Config.Listeners has a nil listener: leave it out"))
	}
	return errors.Join(errs...)
}

// join lists addresses as text.
func join(addrs []net.Addr) string {
	var list []string
	for _, addr := range addrs {
		list = append(list, listen.Address{Network: addr.Network(), At: addr.String()}.String())
	}
	return strings.Join(list, ", ")
}
