package load

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// addresses are those of the targets and of this side.
type addresses struct {
	targets []unix.Sockaddr
	sources []unix.Sockaddr // nil if the kernel chooses
	family  int
}

// resolve parses the addresses of the targets and sources, which are valid.
func resolve(plan *Plan) (a addresses, err error) {
	for _, t := range plan.Targets {
		addr := netip.MustParseAddrPort(t)
		a.targets = append(a.targets, sockaddr(addr))
		family := unix.AF_INET
		if !addr.Addr().Unmap().Is4() {
			family = unix.AF_INET6
		}
		if a.family != 0 && a.family != family {
			return a, errors.New("targets mix IPv4 and IPv6")
		}
		a.family = family
	}
	if plan.Source == "" {
		return a, nil
	}
	prefix := netip.MustParsePrefix(plan.Source)
	addr := prefix.Masked().Addr().Next()
	for ; prefix.Contains(addr) && len(a.sources) < max(plan.Sources, 1); addr = addr.Next() {
		a.sources = append(a.sources, sockaddr(netip.AddrPortFrom(addr, 0)))
	}
	if len(a.sources) == 0 { // the prefix has a single address
		a.sources = append(a.sources, sockaddr(netip.AddrPortFrom(prefix.Addr(), 0)))
	}
	return a, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if ip := a.Addr().Unmap(); ip.Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
