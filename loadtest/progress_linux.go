package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A progress shows the state of a run, as a bar on a terminal and otherwise as a line per second.
type progress struct {
	out io.Writer
	bar *progressbar.ProgressBar // nil without a terminal
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(8),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionClearOnFinish())
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
	line := fmt.Sprintf("%3.0fs %-8s %7s open %6s msg/s %s lost %s reaped", now.At.Seconds(), phase, grouped(now.Open), grouped(rate),
		grouped(all.Lost), grouped(all.Reaped))
	if all.OpenFailed > 0 {
		line += fmt.Sprintf(" %s not opened", grouped(all.OpenFailed))
	}
	if p.bar == nil {
		fmt.Fprintln(p.out, line)
		return
	}
	p.bar.Describe(line)
	_ = p.bar.Set(min(int(1000*passed.Seconds()/max(of.Seconds(), 1e-3)), 999))
}

// end removes the bar. It accepts a nil progress.
func (p *progress) end() {
	if p != nil && p.bar != nil {
		_ = p.bar.Finish()
	}
}
