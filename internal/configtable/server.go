package configtable

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// LongestDrain is the longest spread and timeout of a drain.
const LongestDrain = 30 * 24 * time.Hour

// Server is the table of server.Config.
var Server = Table{
	{Name: "addr", Field: "Addresses", AtStart: true,
		Help: "`address` to listen on: host:port, unix:///path, or fd://3 for an inherited socket; may be set several times"},
	{Name: "loops", Field: "NumEventLoop", Zero: "one per CPU", Min: 1, Max: math.MaxInt32, AtStart: true,
		Help: "`number` of event loops"},
	{Name: "max-per-source", Field: "Sources.Connections", Zero: "any number", Min: 1, Max: math.MaxInt32, Alone: true,
		AtStart: true, Help: "limit the `number` of connections of one IPv4 address or IPv6 /64"},
	{Name: "source-rate", Field: "Sources.Rate", Zero: "any number", Min: 1, Max: math.MaxInt32, Alone: true,
		AtStart: true, Help: "limit the `number` of new connections per second of one IPv4 address or IPv6 /64"},
	{Name: "accept-rate", Field: "AcceptRate", Zero: "any number", Min: 1, Max: math.MaxInt32, Alone: true,
		AtStart: true, Help: "limit the `number` of new connections per second"},
	{Name: "pressure-timeout", Field: "PressureTimeout", Max: age, AtStart: true,
		Help: "shorten idle timeouts, down to this `duration`, while connections, descriptors or memory run short"},
	{Name: "socket-buffer", Field: "SocketBuffer", Zero: "as the kernel is set", Min: 16 << 10, Max: 1 << 30, AtStart: true,
		Help: "limit the `bytes` that the kernel keeps for a connection, in each direction"},
	{Name: "share-port", Field: "ReusePort", AtStart: true,
		Help: "let other processes listen on the same TCP port"},
	{Name: "drain-delay", Field: "Drain.Delay", Max: age, AtStart: true,
		Help: "`duration` between the signal to stop and the start of the drain"},
	{Name: "drain-spread", Field: "Drain.Spread", Max: int64(LongestDrain), AtStart: true,
		Help: "`duration` over which the drain closes idle connections, at random instants"},
	{Name: "drain-timeout", Field: "Drain.Timeout", Zero: "twice the spread", Max: int64(LongestDrain), AtStart: true,
		Help: "`duration` of the drain, at the end of which busy connections are closed"},
	{Name: "drain-keep-listening", Field: "Drain.KeepListening", AtStart: true,
		Help: "keep the listeners during the drain, for sockets that outlive the server (fd://):\nnew clients wait for the next server instead of being refused"},
	{Name: "admin", Field: "Admin.Addr", AtStart: true,
		Help: "`address` of a live page, metrics and probes, such as 127.0.0.1:7080.\nAn address that other machines can reach needs a token"},
	{Name: "admin-token-file", Field: "Admin.Token", Secret: true, AtStart: true,
		Help: "`file` with the token for changes on admin; without it changes are refused"},
	{Name: "admin-pprof", Field: "Admin.Profiles", AtStart: true,
		Help: "serve profiles at /debug/pprof/ of admin"},
}

// minToken is the length of the shortest token. A shorter one can be guessed.
const minToken = 16

// TokenMistake returns what is wrong with the token of the admin listener, or "".
func TokenMistake(token string) string {
	switch {
	case token == "":
	case len(token) < minToken:
		return fmt.Sprintf("has %d characters: set at least %d", len(token), minToken)
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "has a character that a header cannot have: use letters and digits"
	}
	return ""
}
