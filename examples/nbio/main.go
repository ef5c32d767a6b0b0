// Command nbio is an echo server on nbio, an engine that accepts by itself.
//
//	go -C examples run ./nbio
//	nc 127.0.0.1 9001
//
// A connection of a client that sends nothing for -read-timeout is closed. Other limits are those
// of idlenet.Config.
package main

import (
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lesismal/nbio"
	"github.com/lesismal/nbio/logging"

	"github.com/idlewheel/idlewheel/idlenet"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9001", "`host:port` to listen on")
	read := flag.Duration("read-timeout", time.Minute, "silence after which a connection is closed")
	flag.Parse()
	reaper, err := idlenet.New(idlenet.Config{
		ReadTimeout: *read,
		OnReap:      func(c net.Conn, reason *idlenet.ReapError) { log.Printf("%v closed: %v", c.RemoteAddr(), reason) },
	})
	if err != nil {
		log.Fatal(err)
	}
	logging.SetLevel(logging.LevelError)
	engine := nbio.NewEngine(nbio.Config{Network: "tcp", Addrs: []string{*addr}})
	engine.OnOpen(func(c *nbio.Conn) {
		if _, err := reaper.Admit(c); err != nil {
			_ = c.CloseWithError(err)
		}
	})
	engine.OnClose(func(c *nbio.Conn, _ error) {
		_ = reaper.Forget(c) // fails if Admit has refused c
	})
	engine.OnData(func(c *nbio.Conn, data []byte) { _, _ = c.Write(data) })
	if err := engine.Start(); err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %v", engine.Addrs[0])
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
	engine.Stop()
}
