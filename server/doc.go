// Package server runs a gnet engine with the idle-connection reaper around a handler: the assembly that most programs
// would write themselves.
//
//	err := server.Run(ctx, server.Config{
//		Addr:    "127.0.0.1:7000",
//		Handler: handler,
//		Idle:    idle.Config{ReadTimeout: time.Minute},
//	})
//
// It adds to gnet.Run what gnet leaves to its callers: it stops with a context, it says which address is in use instead
// of sharing it or deleting a file, and it reports an engine that died. gnet ends an engine whose accept fails once, for
// example for want of descriptors, and returns nil.
//
// It knows nothing of the protocol that the handler speaks, and decides nothing about connections: that is package idle.
package server
