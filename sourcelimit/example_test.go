package sourcelimit_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/idlewheel/idlewheel/sourcelimit"
)

// A source is a network rather than an address.
func Example() {
	clients, err := sourcelimit.New(sourcelimit.Limits{Connections: 2, IPv4Bits: 24})
	if err != nil {
		log.Fatal(err)
	}
	for _, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "198.51.100.1"} {
		fmt.Println(from, clients.Admit(netip.MustParseAddr(from)))
	}
	clients.Release(netip.MustParseAddr("192.0.2.1"))
	fmt.Println("and now", clients.Admit(netip.MustParseAddr("192.0.2.3")))
	// Output:
	// 192.0.2.1 <nil>
	// 192.0.2.2 <nil>
	// 192.0.2.3 sourcelimit: too many connections of one source: 192.0.2.0/24 has 2 open
	// 198.51.100.1 <nil>
	// and now <nil>
}
