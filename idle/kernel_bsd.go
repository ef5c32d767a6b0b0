//go:build unix && !linux

package idle

import "time"

// kernelStep is not used where the kernel does not tell when the last byte came.
const kernelStep time.Duration = 0

// askKernel asks what gnet cannot know: whether bytes of the peer wait unread in the socket.
func askKernel(fd int) evidence { return evidence{found: peek(fd), queued: -1} }
