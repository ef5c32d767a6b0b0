// Package network says which addresses count as one client.
package network

import (
	"net"
	"net/netip"
)

// Usual lengths of prefixes: a customer usually has all addresses of an IPv6 network.
const (
	IPv4Bits = 32
	IPv6Bits = 64
)

// AddrOf returns the IP address of a peer: of TCP, UDP and IP, and of all types with a method
// AddrPort. A unix socket has the zero Addr.
func AddrOf(addr net.Addr) netip.Addr {
	switch addr := addr.(type) {
	case interface{ AddrPort() netip.AddrPort }:
		return addr.AddrPort().Addr()
	case *net.IPAddr:
		if addr != nil {
			ip, _ := netip.AddrFromSlice(addr.IP)
			return ip.WithZone(addr.Zone)
		}
	}
	return netip.Addr{}
}

// Of returns the network of an address, by the length of its prefix in IPv4 and in IPv6. An IPv4
// address that is mapped to IPv6 counts as IPv4, and a zone does not count. An address that is not
// valid, such as that of a unix socket, has the zero Prefix.
func Of(addr netip.Addr, ipv4Bits, ipv6Bits int) netip.Prefix {
	addr = addr.Unmap()
	bits := ipv6Bits
	if addr.Is4() {
		bits = ipv4Bits
	}
	of, _ := addr.Prefix(bits) // it removes the zone
	return of
}

// IsPublic reports whether an address is one of the internet, and not of a host or site only.
func IsPublic(addr netip.Addr) bool {
	return addr.IsGlobalUnicast() && !addr.IsPrivate()
}
