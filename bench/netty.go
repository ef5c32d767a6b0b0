package main

import (
	"fmt"

	"github.com/idlewheel/idlewheel/bench/internal/netty"
	"github.com/idlewheel/idlewheel/bench/internal/process"
	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

const (
	nettyName = "Netty HashedWheelTimer"
	nettyNote = "In a Java VM of its own. A call only queues the change; a worker files it at the next tick, on another core. " +
		"Reschedule is `cancel` and `newTimeout`. Processor times include those of the VM."
)

// nettyBench is the program NettyBench.
type nettyBench struct {
	*process.Process
	version string
}

// startNetty starts NettyBench. An error is the reason why Netty is left out.
func startNetty() (nettyBench, error) {
	cmd, version, err := netty.Command("netty/NettyBench.java")
	if err != nil {
		return nettyBench{}, err
	}
	p, err := process.Start(cmd)
	return nettyBench{p, version}, err
}

func (b nettyBench) measure(l load) (f rounds.Figures, err error) {
	return f, b.Ask(fmt.Sprint(l.n, l.passes, int64(l.expiry)), &f)
}
