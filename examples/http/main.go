// Command http is an HTTP server on package net with a defence against slow clients.
//
//	go -C examples run ./http
//	curl http://127.0.0.1:8081/                                   # in another terminal
//	slowhttptest -H -c 50 -i 1 -l 20 -u http://127.0.0.1:8081/    # heads that never end
//	slowhttptest -B -c 50 -i 1 -l 20 -u http://127.0.0.1:8081/    # bodies that never end
//
// A keep-alive connection without a request is closed after -read-timeout. A connection must send
// its first request within -handshake-timeout, later heads within -head-timeout, and a body at
// -min-rate. A client may have -max-per-source connections. A handler may take as long as it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// paced requires the body of a request at the rate of MinRate.
func paced(ln *idlenet.Listener, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := ln.Conn(idlenet.ConnOf(r.Context())) // the zero Conn if it has been closed
		if r.ContentLength != 0 {
			conn.BeginMessage()
			defer conn.EndMessage()
			r.Body = &body{r.Body, conn.EndMessage}
		}
		next.ServeHTTP(w, r)
	})
}

// A body calls a function at its end.
type body struct {
	io.ReadCloser
	atEnd func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.atEnd()
	}
	return n, err
}

func main() {
	var cfg idlenet.Config
	var limits sourcelimit.Limits
	addr := flag.String("addr", "127.0.0.1:8081", "`host:port` to listen on")
	head := flag.Duration("head-timeout", 10*time.Second, "time for the head of a request after the first one")
	flag.DurationVar(&cfg.ReadTimeout, "read-timeout", time.Minute, "silence after which a connection is closed")
	flag.DurationVar(&cfg.HandshakeTimeout, "handshake-timeout", 10*time.Second, "time for the first request")
	flag.IntVar(&cfg.MinRate.BytesPerSecond, "min-rate", 1000, "bytes per second of a body")
	flag.DurationVar(&cfg.MinRate.Window, "min-rate-window", 5*time.Second, "time in which the bytes are counted")
	flag.IntVar(&limits.Connections, "max-per-source", 100, "connections of one client")
	flag.Parse()
	cfg.Sources = limits
	cfg.OnReap = func(c net.Conn, reason *idlenet.ReapError) {
		log.Printf("%v closed: %v", c.RemoteAddr(), reason)
	}
	inner, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	ln, err := idlenet.Listen(inner, cfg)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %v", ln.Addr())

	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.FormValue("for"))
		select {
		case <-time.After(min(d, time.Minute)):
			fmt.Fprintln(w, "done")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<30))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, n, "bytes")
	})
	server := &http.Server{Handler: paced(ln, mux), ReadHeaderTimeout: *head, MaxHeaderBytes: 64 << 10}
	ln.AttachHTTP(server)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
