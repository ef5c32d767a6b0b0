package main

import (
	"cmp"
	"flag"
	"fmt"
	"strings"

	"github.com/panjf2000/gnet/v2"
	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/settings"
)

// keepClosed is the number of closed connections that serve keeps for its page.
const keepClosed = 128

// addLimits adds the named settings to the flags of a command, in their order, or all of them.
func addLimits(cmd *cobra.Command, defaults idle.Config, names ...string) *settings.Source {
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
	cfg.KeepClosed = cmp.Or(cfg.KeepClosed, keepClosed)
	cfg.Goodbye = goodbye
	cfg.Heartbeat.Ping = nil
	if cfg.Heartbeat.Interval != 0 {
		cfg.Heartbeat.Ping = func(gnet.Conn) []byte { return []byte(ping + "\n") }
	}
}

// goodbye tells the peer why its connection is closed.
func goodbye(_ gnet.Conn, reason *idle.ReapError) []byte {
	return fmt.Appendf(nil, "closing: %s\n", strings.TrimPrefix(reason.Error(), "idle: connection reaped: "))
}

// explain returns an error as one line with flags in the place of fields.
func explain(err error) string { return serverFlags.Replace(settings.Explain(err, "--")) }

// serverFlags names the flags of the fields of server.Config.
var serverFlags = strings.NewReplacer(
	"server: ", "",
	"Config.Addresses", "--addr",
	"Config.NumEventLoop", "--loops",
	"Config.Sources.Connections", "--max-per-source",
	"Config.Sources.Rate", "--source-rate",
	"Config.AcceptRate", "--accept-rate",
	"Config.PressureTimeout", "--pressure-timeout",
	"Config.ReusePort and Config.OneAcceptor are", "--share-port and --one-acceptor are",
	"Config.ReusePort is", "--share-port is",
	"leave OneAcceptor off", "leave --one-acceptor off",
	"Config.Admin.Addr", "--admin",
	"Config.Admin.Token", "--admin-token-file",
	"Config.Admin: admin: Config.Token has", "the token of --admin-token-file has",
	"Config.Admin has no Addr", "--admin is not set",
	"for Config.Admin", "for --admin",
	"Timeout not below Spread", "--drain-timeout not below --drain-spread",
	"Config.Drain is", "the drain (--drain-delay, --drain-spread, --drain-timeout) is",
)
