package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

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

// others are the connections that stay alive during a storm or an attack.
type others struct {
	connections int
	every, calm time.Duration
}

// add adds their flags, with the defaults of the verb.
func (others *others) add(cmd *cobra.Command, connections int, every time.Duration) {
	others.connections = connections
	cmd.Flags().Var((*count)(&others.connections), "living", "connections that stay alive")
	cmd.Flags().DurationVar(&others.every, "every", every, "interval between messages of a living connection")
	cmd.Flags().DurationVar(&others.calm, "calm", 5*time.Second, "measured time before and after")
}

// others returns their group, which has a client process of its own.
func (o *options) others(others others) load.Spec {
	s := o.heartbeats(living, others.connections, others.every)
	s.Apart = true
	return s
}

// behaving returns a group of connections with the given behaviour. Those that expect no echo are
// never silent, or silent from the start, so the idle timeout is not what closes them.
func (o *options) behaving(name string, as load.Behaviour, n int, interval time.Duration) load.Spec {
	s := load.Spec{Name: name, Behaviour: as, Connections: n, Interval: interval, Jitter: o.jitter, Size: o.size}
	if as.Echoes() {
		s.Timeout = o.targetTimeout()
	}
	return s
}

// targetTimeout returns the idle timeout of the target, or 0 if it has none or it is unknown.
func (o *options) targetTimeout() time.Duration {
	if o.Bare {
		return 0
	}
	return o.Timeout
}

// checkOthers checks their flags.
func (o *options) checkOthers(others others) error {
	return errors.Join(
		unless(others.connections >= 1 && others.every >= time.Millisecond && others.calm > 0,
			"--living, --every and --calm: set positive values"),
		unless(!o.exceedsTimeout(others.every), "--every of %v is too long for a --timeout of %v", others.every, o.Timeout))
}
