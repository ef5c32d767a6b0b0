package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/idle"
)

// idleFlags are the flags that say which connections are dead, in a Config.
type idleFlags struct {
	cfg idle.Config
}

// flagNames says how the fields are named here of which package idle speaks in its errors. A name that begins with another comes
// before it.
var flagNames = []string{
	"Config.ReadTimeout", "--read-timeout",
	"Config.WriteTimeout", "--write-timeout",
	"Config.AllTimeout", "--all-timeout",
	"Config.Jitter", "--jitter",
	"Config.FirstByteTimeout", "--first-byte-timeout",
	"Config.HandshakeTimeout", "--handshake-timeout",
	"Config.WriteStallTimeout", "--write-stall-timeout",
	"Config.OutputLimit.SoftFor", "--output-soft-for",
	"Config.OutputLimit.Soft", "--output-soft-limit",
	"Config.OutputLimit", "--output-limit",
	"Config.MinRate.Window", "--min-rate-window",
	"Config.MinRate.BytesPerSecond", "--min-rate",
	"Config.MinRate", "--min-rate",
	"Config.Heartbeat.Retry", "--heartbeat-retry",
	"Config.Heartbeat.MaxMissed", "--heartbeat-missed",
	"Config.Heartbeat.Jitter", "--heartbeat-jitter",
	"part of Interval", "part of --heartbeat",
	"Config.Heartbeat.Interval", "--heartbeat",
	"Config.Heartbeat has no Interval", "--heartbeat is not set",
	"Config.MaxAgeGrace", "--max-age-grace",
	"Config.MaxAge", "--max-age",
	"Config.TCPKeepAlive", "--tcp-keepalive",
	"Config.KeepClosed", "--keep-closed",
	"Config.OutageGrace", "--outage-grace",
	"Config.Tick", "--tick",
}

// add adds the flags that every server has.
func (f *idleFlags) add(cmd *cobra.Command, readTimeout time.Duration) {
	cmd.Flags().DurationVar(&f.cfg.ReadTimeout, "read-timeout", readTimeout, "close a connection that sends nothing for so long")
	cmd.Flags().DurationVar(&f.cfg.Tick, "tick", 100*time.Millisecond,
		"step of the deadlines: a connection is closed at most two ticks after its timeout;\n"+
			"by default less where a timeout is less than a second")
}

// addAll adds those flags and all others.
func (f *idleFlags) addAll(cmd *cobra.Command, readTimeout time.Duration) {
	f.add(cmd, readTimeout)
	cfg, flags := &f.cfg, cmd.Flags()
	flags.DurationVar(&cfg.WriteTimeout, "write-timeout", 0, "count a connection to which nothing is sent for so long")
	flags.DurationVar(&cfg.AllTimeout, "all-timeout", 0, "close a connection on which nothing is sent either way for so long")
	flags.Float64Var(&cfg.Jitter, "jitter", 0, "add up to this `part` to the timeouts above, another one to each connection")
	flags.DurationVar(&cfg.FirstByteTimeout, "first-byte-timeout", 0, "close a connection whose first byte takes longer")
	flags.DurationVar(&cfg.HandshakeTimeout, "handshake-timeout", 0, "close a connection whose first line takes longer to be complete")
	flags.DurationVar(&cfg.WriteStallTimeout, "write-stall-timeout", 0, "reset a connection that takes nothing of what waits for so long")
	flags.IntVar(&cfg.OutputLimit.Hard, "output-limit", 0, "reset a connection for which more `bytes` wait")
	flags.IntVar(&cfg.OutputLimit.Soft, "output-soft-limit", 0, "reset a connection for which more `bytes` wait for --output-soft-for")
	flags.DurationVar(&cfg.OutputLimit.SoftFor, "output-soft-for", 0, "see --output-soft-limit")
	flags.IntVar(&cfg.MinRate.BytesPerSecond, "min-rate", 0, "close a connection that has begun a line and sends fewer `bytes` a second")
	flags.DurationVar(&cfg.MinRate.Window, "min-rate-window", 0, "over which --min-rate is counted; 0 is 5s")
	flags.DurationVar(&cfg.Heartbeat.Interval, "heartbeat", 0, "send a line PING to a connection that sends nothing for so long")
	flags.DurationVar(&cfg.Heartbeat.Retry, "heartbeat-retry", 0, "send another after so long; 0 is --heartbeat")
	flags.IntVar(&cfg.Heartbeat.MaxMissed, "heartbeat-missed", 0, "close a connection that leaves so many without an answer; 0 is 2")
	flags.Float64Var(&cfg.Heartbeat.Jitter, "heartbeat-jitter", 0,
		"add up to this `part` to --heartbeat, another one for each connection; 0 is 0.2, -1 is none")
	flags.DurationVar(&cfg.MaxAge, "max-age", 0, "close a connection that is as old, a tenth less or more")
	flags.DurationVar(&cfg.MaxAgeGrace, "max-age-grace", 0, "tell it so long before")
	flags.DurationVar(&cfg.TCPKeepAlive, "tcp-keepalive", 0, "let the kernel find a peer that has vanished within so long")
	flags.IntVar(&cfg.KeepClosed, "keep-closed", 0, "keep so many of those that were closed last, and why, for --admin; 0 is 128")
	flags.DurationVar(&cfg.OutageGrace, "outage-grace", 0,
		"silent peers are not closed earlier than the length of an outage of this server after its end,\nat most this;\n"+
			"while nothing is heard, verdicts are held for at most this;\n"+
			"0 is 2m, and one more timeout; a negative duration switches both off")
	flags.BoolVar(&cfg.ObserveOnly, "observe-only", false, "close nothing; log and count what would be closed")
}

// config returns the flags as a Config, or a usageError.
func (f *idleFlags) config(cmd *cobra.Command) (idle.Config, error) {
	cfg := f.cfg
	if !cmd.Flags().Changed("tick") {
		cfg.Tick = 0 // the default depends on the timeouts
	}
	cfg.KeepClosed = cmp.Or(cfg.KeepClosed, 128)
	cfg.Goodbye = goodbye
	if cfg.Heartbeat.Interval != 0 {
		cfg.Heartbeat.Ping = func(gnet.Conn) []byte { return []byte(ping + "\n") }
	}
	if _, err := idle.Middleware(&echo{}, cfg); err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

// describe names the limits that are set.
func describe(cfg idle.Config) string {
	var limits []string
	for _, limit := range []struct {
		name  string
		value any
		on    bool
	}{
		{"read timeout", cfg.ReadTimeout, cfg.ReadTimeout > 0},
		{"write timeout", cfg.WriteTimeout, cfg.WriteTimeout > 0},
		{"all timeout", cfg.AllTimeout, cfg.AllTimeout > 0},
		{"jitter", cfg.Jitter, cfg.Jitter > 0},
		{"first byte timeout", cfg.FirstByteTimeout, cfg.FirstByteTimeout > 0},
		{"handshake timeout", cfg.HandshakeTimeout, cfg.HandshakeTimeout > 0},
		{"write stall timeout", cfg.WriteStallTimeout, cfg.WriteStallTimeout > 0},
		{"output limit", cfg.OutputLimit.Hard, cfg.OutputLimit.Hard > 0},
		{"output soft limit", cfg.OutputLimit.Soft, cfg.OutputLimit.Soft > 0},
		{"min rate", cfg.MinRate.BytesPerSecond, cfg.MinRate.BytesPerSecond > 0},
		{"heartbeat", cfg.Heartbeat.Interval, cfg.Heartbeat.Interval > 0},
		{"heartbeat jitter", max(cfg.Heartbeat.Jitter, 0), cfg.Heartbeat.Interval > 0},
		{"max age", cfg.MaxAge, cfg.MaxAge > 0},
		{"tcp-keepalive", cfg.TCPKeepAlive, cfg.TCPKeepAlive > 0},
		{"outage grace", cfg.OutageGrace, cfg.OutageGrace > 0},
		{"tick", cfg.Tick, true},
	} {
		if limit.on {
			limits = append(limits, fmt.Sprintf("%s %v", limit.name, limit.value))
		}
	}
	if cfg.OutageGrace < 0 {
		limits = append(limits, "no outage grace")
	}
	if cfg.ObserveOnly {
		limits = append(limits, "observing only")
	}
	return strings.Join(limits, ", ")
}

// goodbye tells the peer why its connection is closed.
func goodbye(_ gnet.Conn, reason *idle.ReapError) []byte {
	return fmt.Appendf(nil, "closing: %s\n", why(reason))
}

// why returns the reason without what is plain from where it stands.
func why(reason *idle.ReapError) string {
	return strings.TrimPrefix(reason.Error(), "idle: connection reaped: ")
}
