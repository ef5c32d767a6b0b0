package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

func newMerge() *cobra.Command {
	var o options
	var expected int
	cmd := &cobra.Command{
		Use: "merge FILE...", Short: "Merge the results of several machines", Args: cobra.ArbitraryArgs,
		Long: `Merge the results of several machines that loaded the same target at the same time (--begin-at), written with --out.
A file may also be the log of a run with --out /dev/stdout.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var p problems
			o.checkReport(&p)
			p.require(len(args) > 0, "name the files written with --out")
			p.require(expected == 0 || expected == len(args), "--expect-results is %d: got %d files", expected, len(args))
			var all []*result.Result
			for _, name := range args {
				r, err := result.Read(name)
				p.add(err)
				all = append(all, r)
			}
			if err := p.err(); err != nil {
				return err
			}
			sum, err := result.Merge(all)
			if err != nil {
				return exitError{err, exitUsage}
			}
			if len(o.expected) == 0 && slices.ContainsFunc(all, func(r *result.Result) bool { return len(r.Expectations) > 0 }) {
				sum.Notes = append(sum.Notes, "the expectations of the results are not judged here: --expect sets new ones")
			}
			return o.report(cmd, sum)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&expected, "expect-results", 0, "exact `number` of files; 0 is any number")
	o.addReport(cmd)
	return cmd
}
