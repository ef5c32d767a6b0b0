package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

// Names of groups and phases.
const (
	living  = "living"    // until the end of the run
	beating = "heartbeat" // until they are silenced
	silent  = "silent"
	during  = "during"

	attackers = "attackers"
)

// heartbeats returns a group of connections that send heartbeats.
func (o *options) heartbeats(name string, connections int, interval time.Duration) load.Spec {
	return o.behaving(name, load.Heartbeat, connections, interval)
}

// apart gives a group a client process of its own.
func apart(s load.Spec) load.Spec {
	s.Apart = true
	return s
}

// behaving returns a group of connections with the given behaviour.
func (o *options) behaving(name string, as load.Behaviour, n int, interval time.Duration) load.Spec {
	return load.Spec{
		Name: name, Behaviour: as, Connections: n, Interval: interval, Jitter: o.jitter, Size: o.size,
		Timeout: o.targetTimeout(),
	}
}

// targetTimeout returns the idle timeout of the target, or 0 if it has none or it is unknown.
func (o *options) targetTimeout() time.Duration {
	if o.Bare {
		return 0
	}
	return o.Timeout
}

// checkOthers checks the flags of the group that stays alive during a storm or an attack.
func (o *options) checkOthers(livingCount int, every, calm time.Duration) error {
	if livingCount < 1 || every < time.Millisecond || calm <= 0 {
		return usageError{errors.New("--living, --every and --calm: set positive values")}
	}
	if o.exceedsTimeout(every) {
		return usageError{fmt.Errorf("--every of %v is too long for a --timeout of %v", every, o.Timeout)}
	}
	return nil
}
