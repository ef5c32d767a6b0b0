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
// that is in use, instead of sharing it or deleting a file. It survives errors of accept, which end
// an engine of gnet, and it reports an event loop that has died.
//
// It does not know the protocol of the handler, and decides nothing about connections: package idle
// does.
//
// # What is around the handler
//
//	  clients                   Admin: a listener for operators
//	     |
//	 listeners
//	     |
//	acceptors    Sources, AcceptRate: above them closed at once
//	     |       no room: the others wait in the queue of the kernel
//	+- event loop of gnet ---+
//	|     Reaper             |<- pressure: shortens idle timeouts
//	|        |               |
//	|  your handler          |
//	+------------------------+
//
// Each event loop is a gnet.Client with acceptors of its own. An acceptor accepts a connection,
// waits until there is room for it, hands it to its loop, and waits until the loop has opened it. A
// loop that is blocked delays its own connections and two new ones.
//
// # Several addresses
//
// All of Config.Addresses and Config.Listeners are served by the same event loops, and the limits
// hold for all of them together.
//
// # Overload
//
// Run finds out how many descriptors the process may have and for how many connections they
// suffice, and refuses to start with too few. From fifteen sixteenths of that on the connections
// that have been idle longest are closed first (package idle). At the limit nothing is accepted.
// New clients wait in the queue of the kernel, in their order, and when the queue is full, the
// kernel drops their attempts, which they repeat; clients of a unix socket get EAGAIN. If other
// parts of the process take descriptors, there is room for fewer connections until the descriptors
// are free again.
//
// Clients that send requests and read no answers would fill the memory. So all output that waits
// is limited to a share of the memory (OutputLimit.Total of package idle). Above it, the
// connections with the most output are reset. Set OutputLimit.Hard as well, to what your slowest
// client takes in ten seconds.
//
// Config.Sources bounds the connections of one network, and Config.AcceptRate the new connections
// of all. Config.PressureTimeout shortens idle timeouts before the limits are reached.
//
// # Stopping
//
// Run stops when its context is done or Shutdown is called. Config.Drain spreads the closes of
// connections: idle ones are closed at random times during Spread, busy ones between Spread
// and Timeout, with the Goodbye of idle.Config. Close ends a drain and closes everything at once.
// [Server.RunUntilSignal] does both on signals.
//
//	ctx done     Delay over           + Spread             + Timeout
//	    |-------------|--------------------|--------------------|
//	not ready    listeners close;     busy ones are        the rest is
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
