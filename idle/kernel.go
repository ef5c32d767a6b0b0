package idle

import "time"

// evidence is the kernel's answer about a connection that seems idle.
type evidence struct {
	found  finding
	exact  bool          // silent is known
	silent time.Duration // since the last byte arrived, to within kernelStep
}

type finding uint8

const (
	nothing finding = iota // no byte waits
	unread                 // bytes of the peer wait to be read
	ended                  // the peer has closed, or the connection is broken: gnet will report it, a reset as an end
)
