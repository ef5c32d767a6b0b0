// Package idle finds the dead connections of a gnet server or client and reaps them: what Netty has in IdleStateHandler,
// ReadTimeoutHandler and WriteTimeoutHandler, for event loops in Go, and what other servers have each alone.
//
//	reaper, err := idle.Middleware(handler, idle.Config{ReadTimeout: time.Minute})
//	if err != nil {
//		return err
//	}
//	return gnet.Run(reaper, "tcp://:9000", gnet.WithMulticore(true))
//
// [Middleware] wraps a gnet.EventHandler. The [Reaper] that it returns forwards every call and every Action, and hands
// out gnet's own connections; it adds no goroutine per connection, no lock and no allocation to a message. A connection
// that passes a limit of its [Config] is closed, and OnClose gets a [*ReapError] with the reason. About idle ones a handler
// that implements [IdleHandler] decides itself.
//
// The usual victim is half-open: the peer has lost power, its network, or its place in the table of a NAT, and will never
// say so (RFC 9293, section 3.5.1).
//
// # Where the Reaper stands
//
// Between each event loop of gnet and your handler. Each loop has a wheel and a table of its own; the driver is one goroutine for all.
//
//	event loop of gnet        Reaper                           your handler
//
//	a connection opens  --->  an entry in the wheel      --->  OnOpen
//	bytes come          ------------------------------------>  OnTraffic
//	                    <---  the stamp of the clock     <---  returns
//	a task              --->  the wheel says who is due  --->  OnIdle
//	    ^                     judge, ask the kernel      --->  OnClose
//	    |
//	    +--- driver: each tick it moves the clock, and posts a task
//	         to each loop that has something due
//
// # The life of a heartbeat
//
// Bytes that come are stamped with the clock. The wheel is not told: it finds out when the old deadline comes up.
//
//	ReadTimeout 60s
//
//	0s        20s       40s       60s       80s       100s
//	|---------|---------|---------|---------|---------|
//	opens     bytes     bytes     look      .         look
//	due 60s   stamp     stamp     due 100s            reaped
//
// # The life of an expiry
//
//	the entry of a connection comes up
//	     |
//	has one of its deadlines passed? --------- no ----> filed anew
//	     | yes
//	ask the kernel: is it still so? ---------- no ----> filed anew
//	     | yes
//	idle timeout: OnIdle ---------------- gnet.None --> filed anew
//	Heartbeat:    Ping ------------ up to MaxMissed --> filed anew
//	MaxAge:       Goodbye -------- once, with grace --> filed anew
//	     | otherwise
//	Goodbye or a reset, and OnClose with the *ReapError
//
// Without an OnIdle, who is read idle or all idle is closed, and who is write idle stays. [Stats] counts what was in order as
// Rescheduled, and those of which the kernel had bytes as SavedByKernel. With ObserveOnly the last step is only counted.
//
// # Ways to be dead
//
//	ReadTimeout, WriteTimeout, AllTimeout   nothing is sent: as events, repeated until there is activity (Netty)
//	FirstByteTimeout, HandshakeTimeout      who connects and says nothing, or never comes to the point (HAProxy)
//	WriteStallTimeout, OutputLimit          who takes nothing of what is sent, while the server's memory fills (Envoy, Redis)
//	MinRate                                 who sends a message byte by byte: slowloris (Kestrel)
//	Heartbeat                               who does not answer (NATS)
//	MaxAge                                  who has been here long enough (gRPC)
//	TCPKeepAlive                                whose kernel does not answer: TCP keepalive
//
// A connection has one entry in a timing wheel, for the nearest of its deadlines. When it comes up, the deadlines are judged; of
// those that have passed the earliest is the reason, also if the judge comes late. [Reaper.Hold], [Reaper.Exempt],
// [Reaper.SetTimeouts] and others tell the Reaper what it cannot know about one connection, and [Reaper.Update] replaces the
// Config of all.
//
// # What counts as a read
//
// Bytes from the peer, and nothing else. gnet calls OnTraffic for Conn.Wake as well: a server that wakes its connections
// to push something does not keep the dead alive. The time is taken when the wrapped OnTraffic returns, so a slow handler
// does not idle out its own connection. A handler that leaves a partial frame in gnet's buffer is fine. One that takes
// leftover bytes out of it elsewhere than in OnTraffic may hide a read, if as many bytes arrive as it took (on Linux and
// TCP the kernel knows better), and makes the next Wake count as one.
//
// # What counts as a write
//
// Bytes that the kernel sends, or that the peer acknowledges, whoever wrote them and when: Write, AsyncWrite, ReadFrom, what
// OnOpen returned, what has waited in gnet's buffer. So a peer that takes a large answer bit by bit is never write idle while
// bytes move. Bytes that are sent again are no activity. The kernel is asked at the deadline, and nothing is done when something
// is written. That is Linux and TCP. On unix sockets and other systems nobody knows when something was sent: there is no write
// idle event, AllTimeout counts reads only, MinRate finds nobody too slow, and output is stalled only if always the same amount waits
// and the peer is silent. There [Reaper.Touch] may help.
//
// # Precision
//
// Never early; at most two ticks late, plus the time that a busy loop needs, plus one step of the
// clock of the kernel, 1 to 10 ms, where the kernel dates what is counted. One tick is the coarse
// clock that heartbeats read, one the wheel. Output is checked four times in its timeout, see
// [Config]. [Event.Late] and [Stats.Lateness] tell what it was.
//
// # Outages
//
// Before a connection is judged dead the Reaper asks the kernel whether bytes wait unread (MSG_PEEK),
// and on Linux when the last one came (TCP_INFO). After a stall heartbeats wait unread in the sockets
// while their deadlines have passed:
//
//	linux                    TCP: unread bytes, and exact idle times; unix sockets: unread bytes
//	darwin, freebsd, ...     unread bytes
//	windows                  nothing: after a stall longer than the timeout the living may be reaped
//
// Time in which the process was stopped, the machine paused or an event loop blocked is not counted
// against a peer. A peer that is silent after an outage is not closed before as much time has passed
// since its end as it took, because peers retransmit at growing intervals. While nothing is heard any
// more from connections that were busy together, verdicts about peers are held until two timeouts
// after the last byte. [Config.OutageGrace] bounds both or switches them off; [Stats] tells of them.
// The whole contract, with the tests that show it, is docs/verdict.md.
//
// # Layers
//
// A layer such as TLS may be a gnet.EventHandler of its own that hands out a gnet.Conn around gnet's,
// outside of the Reaper or inside. Its connections need a method NetConn or Unwrap that returns the
// connection inside; all methods of the Reaper look through it. Goodbye, Ping and OnIdle get the
// outer connection: always if the layer is outside, and after the first call of a method of the
// Reaper with it, such as [Reaper.MarkReady], if the layer is inside.
//
// # Goroutines
//
// OnOpen, OnTraffic, OnClose, OnIdle and the functions in the Config run on the loop goroutine of their connection, and must
// not block. Reaping happens in tasks that gnet runs between its events, each of about half a millisecond, so that the living
// are served while thousands of dead go: in the order of their deadlines, but for those of one tick. [Stats.Behind] tells when
// they are more than can be closed in time. One more goroutine, the driver, moves the clock and posts these tasks. It lives
// while there are connections: the last to close stops it and waits for it, so nothing is left when gnet.Run returns.
//
// # Cost
//
// Measured on 2026-11-21 (go test -bench . ./idle; AMD EPYC, 2 cores, Go 1.26), beyond a handler that does nothing, in
// random order:
//
//	                                  1,000 conns   100,000   1,000,000
//	OnTraffic                                 10 ns     10 ns       20 ns    (time.Now: 47 ns; at a million 30 to 80 ns
//	OnTraffic, everything switched on         11 ns     11 ns       20 ns     when others use the cache of the machine)
//	OnOpen and OnClose together              220 ns    (with other connections open; the first and the last of all start and
//	                                                    stop the driver)
//	Update, per connection                   140 ns
//
// A look at a connection whose deadline has come up costs 0.1 µs, or 1 µs if the kernel has to be asked.
// With WriteStallTimeout or OutputLimit gnet's buffer of each connection is read without a system call:
// four times in the shortest of those timeouts, once a second with OutputLimit.Hard, and less often
// while the event loop hears nothing. The kernel is asked while output waits, and once in
// WriteStallTimeout.
//
// A connection adds 107 bytes of heap with one event loop, 119 with two, and 121 with eight, whatever is switched on: 12 bytes in a hash table per loop, and as much again where
// descriptors are spread over loops; a state of 72; 20 in the wheel. Nothing is allocated per message. The memory is used again
// and not given back: it stays at its peak until the engine ends. While there are connections the process wakes up once per
// tick.
//
// # Limits
//
// Datagrams have no connection to lose and are passed through, also those of a gnet.Client. A panic of the handler is not
// caught.
package idle
