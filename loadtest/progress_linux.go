package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A progress shows the state of a run: one line that changes on a terminal, and otherwise a line
// per second.
type progress struct {
	out   io.Writer
	width func() int // of the terminal; nil without one
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width == 0 {
				return 80
			}
			return width
		}
	}
	return p
}

// update shows the last sample, and how much of its phase has passed.
func (p *progress) update(samples []result.Sample, phase string, all *result.Group, passed, of time.Duration) {
	now := samples[len(samples)-1]
	rate := uint64(0)
	if n := len(samples); n > 1 {
		before := samples[n-2]
		if since := now.At - before.At; since > 0 && now.Messages > before.Messages {
			rate = uint64(float64(now.Messages-before.Messages) / since.Seconds())
		}
	}
	line := fmt.Sprintf("%3.0fs %-8s %7s open %6s msg/s %s lost %s reaped", now.At.Seconds(), phase, format.Count(now.Open), format.Count(rate),
		format.Count(all.Lost), format.Count(all.Reaped))
	if all.OpenFailed > 0 {
		line += fmt.Sprintf(" %s not opened", format.Count(all.OpenFailed))
	}
	if p.width == nil {
		fmt.Fprintln(p.out, line)
		return
	}
	line = fmt.Sprintf("%3.0f%% %s", min(100*passed.Seconds()/max(of.Seconds(), 1e-3), 100), line)
	// A line as wide as the terminal would wrap on some.
	fmt.Fprintf(p.out, "\r\x1b[K%s", line[:min(len(line), max(p.width()-1, 0))])
}

// end removes the line. It accepts a nil progress.
func (p *progress) end() {
	if p != nil && p.width != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
