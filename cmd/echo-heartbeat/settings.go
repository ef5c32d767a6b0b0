package main

import (
	"cmp"
	"flag"
	"fmt"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

// outputLimit is the most output in bytes that serve keeps for a connection. An answer has at most
// the 64 KiB that gnet reads at a time.
const outputLimit = 1 << 20

// addLimits adds the named settings to the flags of a command, in their order, or all of them.
func addLimits(cmd *cobra.Command, defaults idle.Config, names ...string) *settings.Source[idle.Config] {
	if len(names) == 0 {
		names = settings.Names()
	}
	set := flag.NewFlagSet(cmd.Use, flag.ContinueOnError)
	limits := settings.New(set, defaults, names...)
	for _, name := range names {
		cmd.Flags().AddGoFlag(set.Lookup(name))
	}
	return limits
}

// complete sets the fields of a Config that are not flags.
func complete(cfg *idle.Config) {
	cfg.KeepClosed = cmp.Or(cfg.KeepClosed, server.KeepClosed)
	cfg.Goodbye = goodbye
	cfg.Heartbeat.Ping = nil
	if cfg.Heartbeat.Interval != 0 {
		cfg.Heartbeat.Ping = func(gnet.Conn) []byte { return []byte(ping + "\n") }
	}
}

// goodbye tells the peer why its connection is closed.
func goodbye(_ gnet.Conn, reason *idle.ReapError) []byte {
	text := reason.Text()
	if after := reason.Reconnect.Round(time.Millisecond); after > 0 {
		text += fmt.Sprintf("; connect again after %v", after)
	}
	return fmt.Appendf(nil, "closing: %s\n", text)
}
