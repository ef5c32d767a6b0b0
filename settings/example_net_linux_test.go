package settings_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/settings"
)

// A server of net/http with a flag for each limit, a file of limits, and SIGHUP.
func Example_net() {
	file := limitsFile("max-age 12h")
	defer os.RemoveAll(filepath.Dir(file))
	args := []string{"--limits", file, "--read-timeout", "30s"} // os.Args[1:]

	flags := flag.NewFlagSet("web", flag.ExitOnError)
	limits := settings.New(flags, idlenet.Config{ReadTimeout: time.Minute, HandshakeTimeout: 10 * time.Second})
	flags.StringVar(&limits.File, "limits", "", "`file` with limits, read again on SIGHUP")
	_ = flags.Parse(args)
	hangups := limits.Watch()
	defer hangups.Stop()

	var cfg idlenet.Config
	if err := limits.Load(&cfg); err != nil {
		log.Fatal(settings.Explain(err, "--"))
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := idlenet.Listen(inner, cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "--"))
	}
	server := &http.Server{Handler: http.NotFoundHandler(), ConnState: ln.ConnState}
	defer server.Close()
	go func() { _ = server.Serve(ln) }()
	fmt.Println(limits.Describe(ln.Config()))

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reloaded := make(chan error)
	go hangups.Run(ctx, ln.Update, func(err error) { reloaded <- err })

	writeFile(file, "read-timeout 5s\nkeep-closed 100")
	_ = syscall.Kill(os.Getpid(), syscall.SIGHUP) // as the command kill -HUP does
	fmt.Println(<-reloaded, limits.Describe(ln.Config()))

	writeFile(file, "read-timeout 5s\nmax-age-grace 1s")
	_ = syscall.Kill(os.Getpid(), syscall.SIGHUP)
	fmt.Println(settings.Explain(<-reloaded, "--"))
	// Output:
	// read-timeout 30s, handshake-timeout 10s, max-age 12h0m0s, tick 50ms, close-grace 5s
	// <nil> read-timeout 5s, handshake-timeout 10s, keep-closed 100, tick 50ms, close-grace 5s
	// --max-age-grace is 1s without --max-age: set both, or neither
}

// limitsFile writes a file of limits into a new folder, and returns its path.
func limitsFile(lines string) string {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		log.Fatal(err)
	}
	file := filepath.Join(dir, "limits")
	writeFile(file, lines)
	return file
}

func writeFile(file, lines string) {
	if err := os.WriteFile(file, []byte(lines+"\n"), 0o600); err != nil {
		log.Fatal(err)
	}
}
