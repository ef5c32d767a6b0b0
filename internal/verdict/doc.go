// Package verdict decides when a connection is dead or has to be closed. It is pure: it has no
// clock, no socket and no event loop, and its functions depend on their arguments only.
//
// [Limits] say what is allowed, [Facts] say what is known of one connection, [Evidence] is what the
// kernel answers about it, and [Away] says when the server could not hear its peers.
// [Limits.Judge] puts them together. The contract that it keeps is docs/verdict.md.
//
// # Time
//
// All instants are durations since the start of one monotonic clock. Where an instant is 0 there
// was none.
//
// # Ownership
//
// Limits and Away are immutable once they are in use. Facts and Evidence are not safe for
// concurrent use.
package verdict
