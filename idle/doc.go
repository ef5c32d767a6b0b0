// Package idle finds the dead connections of a gnet server or client and reaps them. It brings
// Netty's IdleStateHandler, ReadTimeoutHandler and WriteTimeoutHandler to Go event loops, with
// checks that other servers offer one at a time.
//
//	reaper, err := idle.Middleware(handler, idle.Config{ReadTimeout: time.Minute})
//	if err != nil {
//		return err
//	}
//	return gnet.Run(reaper, "tcp://:9000", gnet.WithMulticore(true), gnet.WithReuseAddr(true))
//
// [Middleware] wraps a gnet.EventHandler. The [Reaper] that it returns forwards every call and
// every Action, and hands out gnet's own connections. It adds no goroutine per connection, and no
// lock and no allocation per message. A connection that passes a limit of its [Config] is closed,
// and OnClose gets a *[ReapError] with the [Reason]. Config.OnIdle may keep an idle connection.
//
// The usual victim is half-open: the peer has lost power, its network, or its place in the table of
// a NAT, and will never say so (RFC 9293, section 3.5.1).
//
// # Where the Reaper stands
//
// The Reaper stands between each event loop of gnet and the handler. Each loop has a wheel and a
// table of its own. The driver is one goroutine for all loops.
//
//	event loop of gnet        Reaper                           your handler
//
//	a connection opens  --->  an entry in the wheel      --->  OnOpen
//	bytes come          ------------------------------------>  OnTraffic
//	                    <---  the stamp of the clock     <---  returns
//	a task              --->  the wheel: what is due?    --->  OnIdle
//	    ^                     judge, ask the kernel      --->  OnClose
//	    |
//	    +--- driver: each tick it moves the clock, and posts a task
//	         to each loop that has something due
//
// Bytes that arrive are stamped with the clock. The entry in the wheel stays where it is, and is
// moved when its old deadline comes up. If the deadline has passed then, the kernel is asked. If it
// knows of no byte either, OnIdle, a ping, a goodbye or the close follows, and OnClose gets the
// *[ReapError].
//
// [Stats] counts checks that found the connection alive as Rescheduled, and those in which the
// kernel had bytes of the peer as SparedUnread. With ObserveOnly the last step is only counted.
//
// # Ways to be dead
//
//	ReadTimeout, WriteTimeout,   nothing is sent: events, repeated until there is activity
//	AllTimeout                   (Netty)
//	FirstByteTimeout,            the peer connects and sends nothing, or never finishes its
//	HandshakeTimeout             login (HAProxy)
//	WriteStallTimeout,           the peer takes no output, and the memory of the server fills
//	OutputLimit                  (Envoy, Redis); OutputMarks make the server wait instead
//	MinRate                      the peer sends a message byte by byte: slowloris (Kestrel)
//	Heartbeat                    the peer does not answer pings (NATS)
//	MaxAge                       the connection is old (gRPC)
//	TCPKeepAlive                 the kernel of the peer does not answer
//
// A connection has one entry in a timing wheel, for the nearest of its deadlines. If several
// deadlines have passed when it is judged, the earliest is the reason. With a [Conn] the handler
// tells the Reaper what it cannot know about one connection, and [Reaper.Update] changes the Config
// of all.
//
// # What counts as a read
//
// A read is the arrival of bytes from the peer. gnet calls OnTraffic for Conn.Wake as well: a
// server that wakes its connections to push data does not keep dead peers alive. The time is taken
// when the wrapped OnTraffic returns, so a slow handler does not idle out its own connection.
//
// A handler may leave a partial frame in gnet's buffer. If it takes leftover bytes out of the
// buffer elsewhere than in OnTraffic, and as many bytes arrive at the same time, a read may be
// missed (on Linux and TCP the kernel corrects that), and the next Wake counts as a read.
//
// # What counts as a write
//
// A write is new bytes that the kernel sends, or that the peer acknowledges, whatever call wrote
// them: Write, AsyncWrite, ReadFrom, the result of OnOpen, or gnet's buffer. A peer that takes a
// large answer slowly is never write idle while bytes move. Retransmissions do not count. The
// kernel is asked at the deadline; a write itself costs nothing.
//
// This holds on Linux and TCP. On unix sockets and other systems the time of a write is unknown:
// there is no write idle event, AllTimeout counts reads only, MinRate does nothing, and output is
// stalled only if the same amount waits and the peer is silent. [Conn.Touch] may help there.
//
// # Precision
//
// A verdict is never early. It is at most two ticks late, plus the time that a busy loop needs,
// plus one step of the kernel's clock, 1 to 10 ms, where the kernel dates what is counted. One tick
// is the coarse clock that heartbeats read, the other the wheel. Output is checked four times in
// its timeout, see [Config]. Event.Late and Stats.Lateness tell how late verdicts were.
//
// # Outages
//
// Before a connection is judged dead, the Reaper asks the kernel whether bytes wait unread
// (MSG_PEEK), and on Linux when the last one arrived (TCP_INFO). After a stall heartbeats wait
// unread in the sockets while their deadlines have passed:
//
//	linux                    TCP: unread bytes, and exact idle times;
//	                         unix sockets: unread bytes
//	darwin, freebsd, ...     unread bytes
//	windows                  nothing: after a stall longer than the timeout living connections
//	                         may be reaped
//
// Time in which the process was stopped, the machine paused or an event loop blocked does not count
// against a peer, see Config.OutageGrace. The contract is docs/verdict.md.
//
// # Layers
//
// A layer such as TLS may be a gnet.EventHandler of its own that hands out a gnet.Conn around
// gnet's, outside of the Reaper or inside. Its connections need a method NetConn or Unwrap that
// returns the connection inside; [Reaper.Conn] looks through it. Goodbye, Ping and OnIdle get the
// outer connection: always if the layer is outside, and after the first call of [Reaper.Conn] with
// it if the layer is inside.
//
// # Goroutines
//
// The loop goroutine of a connection is the goroutine of gnet's event loop that runs its events. On
// it run OnOpen, OnTraffic, OnClose, all functions of the Config, callbacks of AsyncWrite, and
// tasks of gnet.EventLoop.Execute. They must not block, because one loop has many connections.
// Methods that are called on the loop goroutine say so; the other methods are safe for concurrent
// use.
//
// Reaping happens in tasks that gnet runs between its events, each of about half a millisecond. So
// living connections are served while thousands of dead ones are closed, in the order of the ticks
// of their deadlines. Stats.LoopDelay tells when there are more than can be closed in time. The
// driver is one more goroutine. It lives while there are connections: the last one to close stops
// it and waits for it, so nothing is left when gnet.Run returns.
//
// # Cost
//
// OnTraffic takes 10 ns more than that of the handler, or 20 ns with a million connections. A look
// at a connection costs 0.1 µs, or 1 µs if the kernel has to be asked. A connection adds 141 bytes
// of heap, and a message allocates nothing. docs/results.md has the measurements, and the costs of
// limits of output. The memory is used again and not given back: it stays at its peak for the life
// of a Reaper, also if its engine ends. While there are connections the process wakes up once per
// tick.
//
// # Limits
//
// Datagrams have no connection to lose and are passed through, also those of a gnet.Client. A panic
// of the handler is not caught.
package idle
