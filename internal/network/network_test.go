package network

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNetworkOfAnAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.0/24", "::ffff:192.0.2.9": "192.0.2.0/24", "2001:db8::1": "2001:db8::/64",
		"2001:db8::ffff:0:0:2%eth0": "2001:db8::/64", "2001:db8:0:1::1": "2001:db8:0:1::/64", "fe80::1%eth1": "fe80::/64", "::1": "::/64",
	} {
		require.Equal(t, netip.MustParsePrefix(want), Of(netip.MustParseAddr(addr), 24, 64), addr)
	}
	require.Zero(t, Of(netip.Addr{}, 32, 64))
}

func TestAnAddressIsFoundWhateverTheProtocol(t *testing.T) {
	ip := net.ParseIP("2001:db8::7")
	for _, addr := range []net.Addr{
		&net.TCPAddr{IP: ip, Port: 1, Zone: "eth0"}, &net.UDPAddr{IP: ip, Port: 1, Zone: "eth0"}, &net.IPAddr{IP: ip, Zone: "eth0"},
	} {
		require.Equal(t, netip.MustParseAddr("2001:db8::7%eth0"), AddrOf(addr), "%T", addr)
	}
	for _, addr := range []net.Addr{
		nil, (*net.TCPAddr)(nil), (*net.UDPAddr)(nil), (*net.IPAddr)(nil), &net.TCPAddr{}, &net.IPAddr{}, &net.UnixAddr{Name: "192.0.2.7"},
	} {
		require.Zero(t, AddrOf(addr), "%T", addr)
	}
}

func TestIsPublic(t *testing.T) {
	for addr, want := range map[string]bool{
		"192.0.2.1": true, "::ffff:192.0.2.1": true, "2001:db8::1": true, "": false,
		"127.0.0.1": false, "10.1.2.3": false, "::ffff:10.1.2.3": false, "192.168.0.1": false, "169.254.1.1": false, "::1": false,
		"fe80::1%eth0": false, "fd00::1": false,
	} {
		parsed, _ := netip.ParseAddr(addr)
		require.Equal(t, want, IsPublic(parsed), addr)
	}
}
