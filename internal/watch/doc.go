// Package watch does what all front ends do with their connections: it knows since when each one is
// silent, looks at it when a deadline passes, and carries out the verdict. Packages idle and
// idlenet are front ends. A front end knows how connections open, how the kernel is asked about
// them, and how they close.
//
// A [Watcher] belongs to a front end: it has the clock, the outages, the settings in force, and
// what is counted for all connections. A [Shard] has a part of the connections: a state for each, a
// timing wheel with the next look at each, and the limits. The front end of a Shard is its [Port].
//
// The page internal/README.md shows the way of a connection through these, from its opening to its
// close.
//
// # Ownership
//
// A Watcher is safe for concurrent use. A Shard is not: one goroutine owns it, or a mutex of the
// front end guards it. A Port is called by the owner of its Shard. It may remove connections, the
// one in hand too. The number of a connection and the instant at which it was opened name it.
package watch
