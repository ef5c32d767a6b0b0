package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

// Names of groups and phases.
const (
	living = "living"
	silent = "silent"
	during = "during"
)

// heartbeats are connections that live by heartbeats.
func (o *options) heartbeats(name string, connections int, interval time.Duration) load.Spec {
	return load.Spec{
		Name: name, Behaviour: load.Heartbeat, Connections: connections, Interval: interval, Jitter: o.jitter, Size: o.size, Timeout: o.targetTimeout(),
	}
}

// behaving returns connections that behave in some way, with messages of the usual size.
func (o *options) behaving(name string, as load.Behaviour, n int, interval time.Duration) load.Spec {
	return load.Spec{Name: name, Behaviour: as, Connections: n, Interval: interval, Jitter: o.jitter, Size: o.size, Timeout: o.targetTimeout()}
}

// reaps returns after which time of silence the target closes, 0 if it does not or that is not known.
func (o *options) targetTimeout() time.Duration {
	if o.bare {
		return 0
	}
	return o.timeout
}

// checkOthers checks the flags of those that are served meanwhile.
func (o *options) checkOthers(livingCount int, every, calm time.Duration) error {
	if livingCount < 1 || every < time.Millisecond || calm <= 0 {
		return usageError{errors.New("--living, --every and --calm: set them above 0")}
	}
	if o.exceedsTimeout(every) {
		return usageError{fmt.Errorf("--every of %v is too seldom for a --timeout of %v", every, o.timeout)}
	}
	return nil
}
