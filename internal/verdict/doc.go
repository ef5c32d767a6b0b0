// Package verdict decides when a connection is dead or has to be closed. It is pure: it has no
// clock, no socket and no event loop, and its functions depend on their arguments only.
//
// [Limits] are the configured limits, [Facts] are the known state of one connection, [Evidence] is
// the kernel's answer about it, and [Away] has the times in which the server could not hear its
// peers. [Limits.Judge] combines them. It implements the contract in docs/verdict.md.
//
// # Time
//
// All instants are of one clock. The instant 0 means none.
//
// # Ownership
//
// Limits and Away are immutable once they are in use. Facts and Evidence are not safe for
// concurrent use.
package verdict
