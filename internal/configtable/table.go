package configtable

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

const (
	ms  = int64(time.Millisecond)
	age = int64(TenYears)
)

const (
	DefaultWindow      = 5 * time.Second // of MinRate.Window
	DefaultShedProtect = time.Second
)

// Idle is the table of idle.Config.
var Idle = Table{
	{Name: "read-timeout", Field: "ReadTimeout", Ticks: true, Adjustable: true, Limit: "Read", Reason: reap.ReadIdle,
		Help: "close a connection when its peer sends nothing for this `duration`"},
	{Name: "write-timeout", Field: "WriteTimeout", Ticks: true, Adjustable: true, Limit: "Write",
		Reason: reap.WriteIdle,
		Help:   "report a connection as write idle when nothing is sent to its peer for this `duration`"},
	{Name: "all-timeout", Field: "AllTimeout", Ticks: true, Adjustable: true, Limit: "All", Reason: reap.AllIdle,
		Help: "close a connection when neither side sends anything for this `duration`"},
	{Name: "jitter", Field: "Jitter", Max: 1, Limit: "Jitter",
		Help: "lengthen read-timeout, write-timeout and all-timeout by up to this `part`, at random for each connection"},
	{Name: "first-byte-timeout", Field: "FirstByteTimeout", Ticks: true, Adjustable: true, Limit: "FirstByte",
		Reason: reap.NoFirstByte, Help: "close a connection when its first byte takes longer than this `duration`"},
	{Name: "handshake-timeout", Field: "HandshakeTimeout", Ticks: true, Adjustable: true, Limit: "Handshake",
		Reason: reap.NoHandshake, Help: "close a connection when its handshake takes longer than this `duration`"},
	{Name: "write-stall-timeout", Field: "WriteStallTimeout", Ticks: true, Adjustable: true, Limit: "Stall",
		Reason: reap.WriteStall,
		Help:   "reset a connection when its peer takes none of its pending output for this `duration`"},
	{Name: "output-limit", Field: "OutputLimit.Hard", Min: 1, Max: noMax, Limit: "Output.Hard", Reason: reap.OverLimit,
		Help: "reset a connection when more `bytes` of output are pending, or its peer takes fewer of one larger answer in 10s"},
	{Name: "output-soft-limit", Field: "OutputLimit.Soft", Min: 1, Max: noMax, Limit: "Output.Soft",
		Needs: "OutputLimit.SoftFor", Reason: reap.OverLimit,
		Help: "reset a connection when more `bytes` of output are pending for longer than output-soft-for"},
	{Name: "output-soft-for", Field: "OutputLimit.SoftFor", Ticks: true, Limit: "Output.SoftFor",
		Needs: "OutputLimit.Soft", Help: "`duration` for which pending output may exceed output-soft-limit"},
	{Name: "output-total", Field: "OutputLimit.Total",
		Zero: "a share of the memory with package server, otherwise none", Negative: "none", Min: 1, Max: noMax,
		Limit: "Output.Total", Reason: reap.OverLimit,
		Help: "reset the connections with the most pending output when more `bytes` of it are pending for all together"},
	{Name: "output-high-mark", Field: "OutputMarks.High", Min: 1, Max: noMax,
		Help: "tell the server to stop writing to a connection when more `bytes` of output are pending"},
	{Name: "output-low-mark", Field: "OutputMarks.Low", Zero: "half of output-high-mark", Min: 1, Max: noMax,
		Needs: "OutputMarks.High",
		Help:  "tell the server to go on when the `bytes` of pending output have fallen to this"},
	{Name: "min-rate", Field: "MinRate.BytesPerSecond", Min: 1, Max: noMax, Limit: "Rate.BytesPerSecond",
		Reason: reap.BelowMinRate, Help: "close a connection when an open message arrives at fewer `bytes` per second"},
	{Name: "min-rate-window", Field: "MinRate.Window", Ticks: true, Limit: "Rate.Window",
		Needs: "MinRate.BytesPerSecond", Default: DefaultWindow,
		Help: "`duration` over which min-rate is measured"},
	{Name: "min-rate-grace", Field: "MinRate.Grace", Ticks: true, Limit: "Rate.Grace", Needs: "MinRate.BytesPerSecond",
		Help: "`duration` between the start of a message and its first window of min-rate"},
	{Name: "min-rate-always", Field: "MinRate.Always", Limit: "Rate.Always", Needs: "MinRate.BytesPerSecond",
		Help: "apply min-rate all the time, not only while a message is open"},
	{Name: "heartbeat", Field: "Heartbeat.Interval", Ticks: true, Limit: "Heartbeat.Interval",
		Reason: reap.HeartbeatTimeout, Help: "send a ping when the peer sends nothing for this `duration`"},
	{Name: "heartbeat-retry", Field: "Heartbeat.Retry", Ticks: true, Limit: "Heartbeat.Retry",
		Needs: "Heartbeat.Interval", Default: Field("Heartbeat.Interval"),
		Help: "send the next ping, or close the connection, when a ping is not answered for this `duration`"},
	{Name: "heartbeat-missed", Field: "Heartbeat.MaxMissed", Min: 1, Max: 15, Limit: "Heartbeat.MaxMissed",
		Needs: "Heartbeat.Interval", Default: 2,
		Help: "close a connection after this `number` of unanswered pings in a row"},
	{Name: "heartbeat-jitter", Field: "Heartbeat.Jitter", Negative: "none", Max: 1, Limit: "Heartbeat.Jitter",
		Needs: "Heartbeat.Interval", Default: 0.2,
		Help: "lengthen heartbeat by up to this `part`, at random for each connection"},
	{Name: "max-age", Field: "MaxAge", Ticks: true, Adjustable: true, Limit: "Age", Reason: reap.MaxAge,
		Help: "close a connection when it is older than this `duration`, ±10 %"},
	{Name: "max-age-grace", Field: "MaxAgeGrace", Ticks: true, Adjustable: true, Limit: "AgeGrace", Needs: "MaxAge",
		Help: "`duration` between the goodbye at max-age and the close"},
	{Name: "reconnect-spread", Field: "ReconnectSpread", Zero: "no suggestion", Max: int64(LongestDrain),
		Help: "suggest that drained clients connect again after a random part of this `duration`"},
	{Name: "tcp-keepalive", Field: "TCPKeepAlive", Min: int64(8 * time.Second), Max: int64(24 * time.Hour), Alone: true,
		Help: "let the kernel detect a vanished peer within about this `duration`"},
	{Name: "max-connections", Field: "MaxConnections", Zero: "any number", Min: 1, Max: math.MaxInt32,
		Reason: reap.Shed,
		Help:   "limit the `number` of open connections; from 15/16 of it on, the longest idle ones are closed"},
	{Name: "shed-protect", Field: "ShedProtect", Ticks: true, Default: DefaultShedProtect, Quiet: true,
		Help: "`duration` of silence before a connection may be closed to make room for new ones"},
	{Name: "observe-only", Field: "ObserveOnly",
		Help: "close nothing; log and count the connections that would be closed"},
	{Name: "keep-closed", Field: "KeepClosed", Min: 1, Max: 1 << 16,
		Help: "remember this `number` of reaped connections, with the reason"},
	{Name: "outage-grace", Field: "OutageGrace", Zero: "2m after an outage and one more timeout during it",
		Negative: "off", Max: age, Adjustable: true,
		Help: "delay verdicts after, and during, an outage of this server for at most this `duration`"},
	{Name: "tick", Field: "Tick", Zero: "a 200th of the shortest timeout, 20ms to 100ms (more above 3.4 years), at most a tenth", Min: ms,
		Max: age, AtStart: true,
		Help: "close a connection at most two ticks of this `duration` after its deadline"},
}

// Net is the table of idlenet.Config: that of idle.Config without what needs an event loop.
var Net = slices.Concat(
	Idle.filter(false, "OutputLimit", "OutputMarks", "ReconnectSpread", "MaxConnections"),
	Table{
		{Name: "max-connections", Field: "MaxConnections", Zero: "any number", Min: 1, Max: math.MaxInt32,
			Reason: reap.Shed,
			Help:   "limit the `number` of open connections; at the limit, each new one replaces a silent one, or is closed"},
		{Name: "wait-for-room", Field: "WaitForRoom", Needs: "MaxConnections",
			Help: "at max-connections, new connections wait until there is room, instead of being closed"},
	},
	Server.filter(true, "Sources", "AcceptRate"),
	Table{
		{Name: "half-closed-timeout", Field: "HalfClosedTimeout", Ticks: true, Adjustable: true, Limit: "HalfClosed",
			Reason: reap.HalfClosed,
			Help:   "close a connection when its peer has ended its side and the server has not for this `duration`"},
		{Name: "close-grace", Field: "CloseGrace", Min: ms, Max: age, Default: 5 * time.Second,
			Help: "`duration` that the server gets to close a connection that has ended"},
	},
)

// filter returns the settings of the given fields, and of the fields in these, or all others.
func (t Table) filter(given bool, fields ...string) Table {
	return slices.DeleteFunc(slices.Clone(t), func(s Setting) bool {
		field, _, _ := strings.Cut(s.Field, ".")
		return slices.Contains(fields, field) != given
	})
}
