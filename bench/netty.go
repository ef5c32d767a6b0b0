package main

import "github.com/idlewheel/idlewheel/bench/internal/process"

const (
	nettyName = "Netty HashedWheelTimer"
	nettyNote = "In a Java VM of its own. A call only queues the change; a worker files it at the next tick, on another core. " +
		"Reschedule is `cancel` and `newTimeout`. Processor times include those of the VM."
)

// startNetty starts the program NettyBench. If that is impossible, the note is the reason.
func startNetty() kind {
	cmd, version, err := process.Netty("netty/NettyBench.java")
	if err != nil {
		return missingNetty(err)
	}
	vm, err := process.Start(cmd)
	if err != nil {
		return missingNetty(err)
	}
	return kind{name: nettyName, version: version, note: nettyNote, vm: vm}
}

func missingNetty(reason error) kind { return kind{name: nettyName, note: reason.Error() + "."} }
