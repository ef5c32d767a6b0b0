// Package server runs a gnet engine with the idle-connection reaper around a handler. It is the
// assembly that most programs would write themselves.
//
//	s, err := server.New(server.Config{
//		Addresses: []string{"127.0.0.1:7000"},
//		Handler:   handler,
//		Idle:      idle.Config{ReadTimeout: time.Minute},
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	handler.reaper = s.Reaper() // its Conn method is for handlers
//	err = s.Run(ctx)
//
// It adds to gnet what gnet leaves to its callers. It stops with a context. It names an address
// that is in use, instead of sharing it or deleting a file. It reports an engine that has died, or
// starts another.
//
// It does not know the protocol of the handler, and decides nothing about connections: package idle
// does.
//
// # What is around the handler
//
//	          clients
//	             |
//	+- engine ---|---------------------------+
//	|        listeners  <--------------------|-- accept pauser: pauses
//	|            |                           |   while there is no room,
//	|    descriptors left?   none: closed    |   or few descriptors
//	|            |                           |
//	|    Sources, AcceptRate   above: closed |
//	|            |                           |
//	|         Reaper         full: Refusal   |<- pressure: shortens
//	|            |                           |   idle timeouts
//	|       your handler                     |
//	+----------------------------------------+
//	   Restart: another one if it died     Admin: a listener for operators
//
// # Several addresses
//
// One engine listens on all of Config.Addresses, and the limits hold for all of them together. A
// unix socket among them implies OneAcceptor, and cannot be combined with ReusePort. Accepting is
// paused on the TCP addresses only: while there is no room, connections on unix sockets are
// accepted and closed.
//
// # Overload
//
// An engine of gnet dies if accepting fails once, for example because there is no free descriptor.
// So Run finds out how many descriptors the process may have and for how many connections they
// suffice, and refuses to start with too few. From fifteen sixteenths of that on the connections
// that have been idle longest are closed first (package idle). At the limit, and when descriptors
// run short for any other reason, Run pauses accepting:
//
//   - On Linux, a filter on the listening sockets drops new connection attempts, and clients retry.
//   - Since 2026 kernels require CAP_NET_ADMIN for the filter. Without it, the pollers of the
//     engine stop watching the listeners, and their backlog is made as short as possible.
//   - On other systems and on unix sockets, new connections are closed after they are accepted.
//
// Clients that send requests and read no answers would fill the memory. So all output that waits
// is limited to a share of the memory (OutputLimit.Total of package idle). Above it, the
// connections with the most output are reset. Set OutputLimit.Hard as well, above your largest
// answer.
//
// Config.Sources bounds the connections of one network, and Config.AcceptRate the new connections
// of all. Config.PressureTimeout shortens idle timeouts before the limits are reached.
//
// # Stopping
//
// Run stops when its context is done or Shutdown is called. Config.Drain spreads the closes of
// connections: idle ones are closed at evenly spread times during Spread, busy ones between Spread
// and Timeout, with the Goodbye of idle.Config. Close ends a drain and closes everything at once.
// [Server.RunUntilSignal] does both on signals.
//
//	ctx done     Delay over           + Spread             + Timeout
//	    |-------------|--------------------|--------------------|
//	not ready    accepting ends;      busy ones are        the rest is
//	             idle ones are        closed               closed
//	             closed
//
// # Observing
//
// Config.Logger gets the configuration at start, what was reaped every ten seconds, and each kind
// of warning at most once a second. Config.Admin is a listener with a live page, JSON, metrics and
// probes (package admin). There an operator sees why a connection was closed, and changes a timeout
// without a restart. Server.Collector is for a Prometheus registry, Server.Stats for anything else.
package server
