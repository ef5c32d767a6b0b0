// Command udp is a UDP server with sessions: it echoes each packet, and forgets a client that has
// sent none for -timeout.
//
//	go -C examples run ./udp -timeout 10s
//	socat - UDP:127.0.0.1:9000
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/timer"
)

// sessions are the clients. Safe for concurrent use.
type sessions struct {
	timers  *timer.Timer
	timeout time.Duration
	mu      sync.Mutex
	all     map[netip.AddrPort]*timer.Idle // guarded by mu
}

// touch is called for each packet of a client.
func (s *sessions) touch(client netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.all[client]; session != nil {
		session.Touch()
		return nil
	}
	session, err := s.timers.AfterIdle(s.timeout, func() { s.end(client) })
	if err != nil {
		return err
	}
	s.all[client] = session
	log.Print(client, " session begins")
	return nil
}

// end is called once for each session, on the goroutine of the Timer.
func (s *sessions) end(client netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, client)
	log.Print(client, " session ends")
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9000", "`host:port` to listen on")
	timeout := flag.Duration("timeout", 30*time.Second, "silence after which a session ends")
	most := flag.Int("sessions", 100_000, "most sessions at a time; packets of others are dropped")
	flag.Parse()
	timers, err := timer.New(timer.Config{MaxPending: *most})
	if err != nil {
		log.Fatal(err)
	}
	probe, err := timers.AfterIdle(*timeout, func() {})
	if err != nil {
		log.Fatal(err) // the timeout is too short
	}
	probe.Stop()
	at, err := net.ResolveUDPAddr("udp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	c, err := net.ListenUDP("udp", at)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = c.Close() })
	log.Printf("listening on %v", c.LocalAddr())
	s := &sessions{timers: timers, timeout: *timeout, all: make(map[netip.AddrPort]*timer.Idle)}
	b := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, client, err := c.ReadFromUDPAddrPort(b)
		if err != nil || s.touch(client) != nil {
			continue
		}
		_, _ = c.WriteToUDPAddrPort(b[:n], client)
	}
	left, err := timers.Shutdown(context.Background())
	log.Print(len(left), " sessions were open")
	if err != nil {
		log.Fatal(err)
	}
}
