package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

func newChurn() *cobra.Command {
	var o options
	var length time.Duration
	cmd := &cobra.Command{
		Use: "churn", Short: "Open and close connections at a rate", Args: noArgs,
		Long: `Open connections at --rate, send a message on each, and close it after the answer, by FIN and RST in turn. At most -c
connections exist at the same time.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(checkLength(length)); err != nil {
				return err
			}
			return o.perform(cmd, "churn", []load.Spec{o.behaving("churn", load.Churn, o.Connections, o.heartbeat)}, func(r *run) {
				on := r.phase("churn", length, func(now result.Counts) bool {
					all := now.Total()
					return all.Opened == 0 && all.OpenFailed >= maxFailedOpens
				})
				r.reportChurn()
				_ = on && r.phase("after", 2*time.Second, nil, load.Command{Silence: "churn"})
			})
		},
	}
	o.add(cmd, 1000, time.Second, time.Minute)
	cmd.Flags().DurationVar(&length, "for", 20*time.Second, "duration of the churn")
	return cmd
}

// reportChurn notes the rate of connections, or fails if no connection was opened.
func (r *run) reportChurn() {
	report, _ := r.clients.Report()
	all := report.Total()
	if all.Opened == 0 && all.OpenFailed > 0 {
		r.fail("no server can be reached at %s: %s", strings.Join(r.opt.Targets, ", "), report.Failures.Reasons()[0])
		return
	}
	if took := r.res.Length("churn").Seconds(); took > 0 {
		r.note("%s connections per second were opened, used and closed; the requested rate is %s",
			format.Count(uint64(float64(all.Answers)/took)), format.Count(uint64(r.opt.Rate)))
	}
}
