// Package idle reaps the idle connections of a gnet server or client: it is what Netty has in IdleStateHandler and
// ReadTimeoutHandler, for event loops in Go.
//
//	reaper, err := idle.Middleware(handler, idle.Config{ReadTimeout: time.Minute})
//	if err != nil {
//		return err
//	}
//	return gnet.Run(reaper, "tcp://:9000", gnet.WithMulticore(true))
//
// [Middleware] wraps a gnet.EventHandler. The [Reaper] that it returns forwards every call and every Action, and hands
// out gnet's own connections; it adds no goroutine per connection, no lock and no allocation to a message. A connection
// whose peer sends nothing for [Config.ReadTimeout] is closed, and OnClose gets a [*ReapError] with the reason. A handler
// that implements [IdleHandler] decides itself.
//
// The usual victim is half-open: the peer has lost power, its network, or its place in the table of a NAT, and will never
// say so (RFC 9293, section 3.5.1).
//
// # What counts as a read
//
// Bytes from the peer, and nothing else. gnet calls OnTraffic for Conn.Wake as well: a server that wakes its connections
// to push something does not keep the dead alive. The time is taken when the wrapped OnTraffic returns, so a slow handler
// does not idle out its own connection. A handler that leaves a partial frame in gnet's buffer is fine. One that takes
// leftover bytes out of it elsewhere than in OnTraffic may hide a read, if as many bytes arrive as it took (on Linux and
// TCP the kernel knows better), and makes the next Wake count as one.
//
// # Precision
//
// Never early; at most two ticks late, plus the time that a busy loop needs. One tick is the coarse clock that heartbeats
// read, one the wheel. [Event.Late] and [Stats.Lateness] tell what it was.
//
// # Stalls
//
// After a process was stopped, or a handler has blocked its loop, heartbeats wait unread in the sockets while their
// deadlines have passed. Before a connection is judged idle the Reaper asks the kernel whether bytes wait (MSG_PEEK), and
// on Linux when the last one came (TCP_INFO). Nobody is reaped for the server's own sleep, on TCP and on unix sockets:
//
//	linux                    TCP: unread bytes, and exact idle times; unix sockets: unread bytes
//	darwin, freebsd, ...     unread bytes
//	windows                  nothing: after a stall longer than the timeout the living may be reaped
//
// # Goroutines
//
// OnOpen, OnTraffic, OnClose and OnIdle run on the loop goroutine of their connection, and must not block. Reaping happens
// in tasks that gnet runs between its events, each of about a millisecond, so that the living are served while thousands
// of dead go. One more goroutine, the driver, moves the clock and posts these tasks. It lives while there are connections:
// the last to close stops it and waits for it, so nothing is left when gnet.Run returns.
//
// # Cost
//
// Measured on 2026-11-21 (go test -bench . ./idle; AMD EPYC, 2 cores, Go 1.26), beyond a handler that does nothing, in
// random order:
//
//	                        1,000 conns   100,000   1,000,000
//	OnTraffic                       10 ns     10 ns       20 ns    (time.Now: 47 ns; at a million 30 to 80 ns
//	                                                                when others use the cache of the machine)
//	OnOpen and OnClose together     95 ns    (with other connections open; the first and the last of all start and
//	                                          stop the driver)
//
// A connection adds 75 bytes of heap with one event loop, 87 with two, and 89 with eight: 12 bytes in a hash table per
// loop, and as much again where descriptors are spread over loops; a state of 40; 20 in the wheel. Nothing is allocated
// per message. The memory is used again and not given back: it stays at its peak until the engine ends. While there are
// connections the process wakes up once per tick.
//
// # Limits
//
// Datagrams have no connection to lose and are passed through, also those of a gnet.Client. A panic of the handler is not
// caught. Writes are not watched yet, nor is output that a peer does not take.
package idle
