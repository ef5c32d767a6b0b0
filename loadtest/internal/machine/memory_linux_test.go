package machine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKernelMemory(t *testing.T) {
	kernel, err := KernelMemory()
	require.NoError(t, err)
	slab, err := kilobytesOf("/proc/meminfo", "Slab")
	require.NoError(t, err)
	require.InEpsilon(t, slab, kernel, 0.5, "without traffic it is almost entirely slabs")
}

func TestTCPPages(t *testing.T) {
	const sockets = "sockets: used 16\n"
	for _, test := range []struct {
		text string
		want uint64
		bad  bool
	}{
		{text: sockets + "TCP: inuse 4 orphan 0 tw 2685 alloc 4 mem 188\nUDP: inuse 0 mem 7\n", want: 188},
		{text: sockets + "UDP: inuse 0 mem 7\nTCP: mem 0", want: 0},
		{text: sockets + "TCP: inuse mem mem 5\n", want: 5},
		{text: "", bad: true},
		{text: sockets + "UDP: inuse 0 mem 7\n", bad: true},
		{text: sockets + "TCP: inuse 4 mem\n", bad: true},
		{text: sockets + "TCP: inuse 4 mem x\n", bad: true},
		{text: sockets + "TCP: inuse 4 mem 4294967296\n", bad: true},
	} {
		pages, err := tcpPages(test.text)
		require.Equal(t, test.bad, err != nil, "%q: %v", test.text, err)
		require.Equal(t, test.want, pages, "%q", test.text)
	}
}
