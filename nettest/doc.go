// Package nettest has only tests: servers that others wrote run on a listener of package idlenet,
// with clients that others wrote. It is a module of its own, so that users of idlewheel do not
// depend on these servers. Besides Go it needs curl and h2load.
//
//	go -C nettest test ./...
package nettest
