// Package idlenet ends the dead connections of servers on package net: net/http, TLS, gRPC,
// WebSocket, or your own. It has the limits and the verdicts of package idle, without gnet.
//
//	inner, err := net.Listen("tcp", ":8080")
//	if err != nil {
//		return err
//	}
//	ln, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: time.Minute})
//	if err != nil {
//		return err
//	}
//	server := &http.Server{Handler: handler}
//	ln.AttachHTTP(server)
//	return server.Serve(ln)
//
// A [Reaper] watches the connections that a [Listener] accepts. Several listeners may share one,
// see [Reaper.Listen], and engines that accept by themselves call [Reaper.Admit]. Nothing is
// wrapped, and no code of it runs when a message is read or written: Accept returns the
// *net.TCPConn itself. At a deadline the Reaper asks the kernel when the last byte arrived
// (TCP_INFO). So a heartbeat costs nothing, and TLS, HTTP or WebSocket above do not notice.
//
// SetReadDeadline before each Read moves a timer for each message, and closes living connections
// after a stall: their heartbeats wait in the sockets while the deadlines pass. The Reaper asks
// whether bytes wait before it judges.
//
// # How a connection ends
//
// The read deadline of the connection is set to an instant in the past. The server's Read returns
// an error that is os.ErrDeadlineExceeded, as after SetReadDeadline, and the server closes the
// connection in its own way. If it does not within Config.CloseGrace, the Reaper closes the
// connection. For the reasons in Config.Reset the Reaper resets the connection at once.
//
// Deadlines that a server sets itself stay in force; the one that passes first wins. If the server
// replaces the deadline in the past by one of its own, CloseGrace applies. Package net/http does so
// when it begins to serve a request. So with [Reaper.AttachHTTP] a request that is being served
// is not idle at all, and connections end when HTTP allows it.
//
// # Layers
//
// The Listener stands below TLS:
//
//	server.ServeTLS(ln, "cert.pem", "key.pem")
//
// A listener that wraps the connections of package net may also stand below the Listener, such as
// one for the PROXY protocol, if its connections have a method NetConn that returns the connection
// inside.
//
// # Closed connections
//
// The server closes its connections, and the Reaper is not told. It finds out at the next look at a
// connection, or before: it checks all in turn every ten seconds, at most 2,048 for each processor
// in a tick, faster where it finds closed ones, and two with each Accept, so that about as many
// closed connections as open ones are kept at most. [Reaper.AttachHTTP] and [Reaper.Forget] tell at
// once. A connection that its server drops without a Close stays open until a limit ends it: the
// Reaper keeps it from the garbage collector, with ObserveOnly too. If the Reaper has ended a
// connection, the connection and its reason are kept for a minute longer, and at most 32,768 of
// them. The goroutine that looks ends when no connection is open and no reason is kept. If the
// Listener of [Listen] is closed, it ends when no connection is open.
//
// # Precision
//
// A verdict is never early. It is at most two ticks late, plus one step of the kernel's clock, 1
// to 10 ms. If many connections end at once, the last of n is about n times 25 µs later: the
// goroutine rests for a millisecond after 64, so that living connections are served meanwhile.
// Times in which the process was stopped or the machine paused do not count against a peer; if
// connections that were busy all fall silent together, verdicts about peers are suspended: see
// docs/verdict.md. While bytes of a peer wait unread in the socket, the peer is not idle: the
// server is.
//
// # Systems
//
// TCP on Linux has everything. For unix sockets, and on other systems, the kernel does not tell
// when bytes arrived. There Config.Stamp wraps each connection, and [Listen] returns an error for
// limits that cannot be kept.
package idlenet
