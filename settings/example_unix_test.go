//go:build unix

package settings_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/settings"
)

// A server with a flag for each limit, a file of limits, and SIGHUP.
func Example() {
	args := []string{"-limits", writeLimits("read-timeout 30s"), "-max-age", "12h"} // os.Args[1:]

	flags := flag.NewFlagSet("chat", flag.ExitOnError)
	limits := settings.New(flags, idle.Config{ReadTimeout: time.Minute})
	flags.StringVar(&limits.File, "limits", "", "`file` with limits, read again on SIGHUP")
	_ = flags.Parse(args)
	hangups := limits.Watch()
	defer hangups.Stop()

	cfg := idle.Config{Goodbye: goodbye}
	if err := limits.Load(&cfg); err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	reaper, err := idle.Middleware(&gnet.BuiltinEventEngine{}, cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	fmt.Println(limits.Describe(reaper.Config()))

	reloaded := make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go hangups.Run(ctx, reaper.Update, func(err error) { reloaded <- err })
	// Now run the reaper with gnet.Run.

	rewrite(limits.File, "read-timeout 5s")
	_ = syscall.Kill(os.Getpid(), syscall.SIGHUP) // as the command kill -HUP does
	fmt.Println(<-reloaded, limits.Describe(reaper.Config()))

	rewrite(limits.File, "tick 50ms")
	_ = syscall.Kill(os.Getpid(), syscall.SIGHUP)
	fmt.Println(settings.Explain(<-reloaded, "-"))
	// Output:
	// read-timeout 30s, max-age 12h0m0s, tick 100ms
	// <nil> read-timeout 5s, max-age 12h0m0s, tick 100ms
	// -tick is 50ms: it stays 100ms until the next start
}

func goodbye(_ gnet.Conn, reason *idle.ReapError) []byte {
	return fmt.Appendf(nil, "closing: %v\n", reason)
}

// writeLimits writes a file of limits and returns its path.
func writeLimits(lines string) (file string) {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		log.Fatal(err)
	}
	file = filepath.Join(dir, "limits")
	rewrite(file, lines)
	return file
}

func rewrite(file, lines string) {
	if err := os.WriteFile(file, []byte(lines+"\n"), 0o600); err != nil {
		log.Fatal(err)
	}
}
