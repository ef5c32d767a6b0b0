// Package server runs a gnet engine with the idle-connection reaper around a handler: the assembly that most programs
// would write themselves.
//
//	err := server.Run(ctx, server.Config{
//		Addr:    "127.0.0.1:7000",
//		Handler: handler,
//		Idle:    idle.Config{ReadTimeout: time.Minute},
//	})
//
// It adds to gnet.Run what gnet leaves to its callers: it stops with a context, it says which address is in use instead
// of sharing it or deleting a file, and it reports an engine that died, or starts another.
//
// It knows nothing of the protocol that the handler speaks, and decides nothing about connections: that is package idle.
//
// # What stands around the handler
//
//	         clients
//	            |
//	+- engine --|------------------------+
//	|       listeners  <-----------------|--- gate: shut while there is
//	|           |                        |    no room
//	|       descriptors?   none: closed  |      ^
//	|           |                        |      +-- guard: looks how many
//	|       Sources, AcceptRate: closed  |          descriptors are left
//	|           |                        |
//	|       Reaper         full: Refusal |<-- pressure: makes idle
//	|           |                        |    timeouts shorter
//	|       your handler                 |
//	+------------------------------------+
//	  Restart: another one if it died    Admin: a listener for operators
//
// # Overload
//
// gnet ends an engine whose accept fails once, for example for want of descriptors, and returns nil. So Run finds out how many
// descriptors the process may have and how many connections they are enough for, and refuses to start with too few. From fifteen
// sixteenths of that on the connections that have been silent longest make room (package idle). At the limit, and when descriptors
// run short whoever takes them, it pauses accepting: on Linux with a filter on the listening sockets, so that the system drops what
// comes and clients ask again; without CAP_NET_ADMIN, which kernels want for that since 2026, by keeping the pollers of the engine from
// looking at them, with a backlog as short as can be; elsewhere, and on unix sockets, by closing what was accepted. Config.Sources
// and Config.AcceptRate bound what one network and all together may open. Config.PressureTimeout shortens idle timeouts before it comes to that.
//
// # Stopping
//
// When the context is done, Config.Drain lets clients go little by little: nobody is accepted any more; who is idle goes at a moment
// of his own within Spread, who is busy between Spread and Timeout, with the Goodbye of idle.Config. Config.StopNow ends it.
//
//	context done    Delay over           + Spread            + Timeout
//	     |---------------|-------------------|-------------------|
//	Stopping        accepting ends;     the busy go         the held and the
//	is called       the idle go                             rest are closed
//
// # Seeing it
//
// Config.Logger gets the configuration at start, what was reaped every ten seconds, and warnings at most once a second each.
// Config.Admin is a listener with a live page, JSON, metrics and probes (package admin), where an operator sees why a connection was
// closed, and changes a timeout without a restart. Server.Collector is for a Prometheus registry of yours, Server.Stats for whatever else.
package server
