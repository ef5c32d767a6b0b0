package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

func newMerge() *cobra.Command {
	var o options
	var expected int
	cmd := &cobra.Command{
		Use: "merge FILE...", Short: "Add up results of several machines",
		Long: `Add up results that were written with --out by several machines that have loaded the same target at the same time (--begin-at).
A file may also be the log of a run with --out /dev/stdout.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name the files that were written with --out")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.expect.check(); err != nil {
				return usageError{err}
			}
			if expected != 0 && expected != len(args) {
				return usageError{fmt.Errorf("--expect-results is %d, and there are %d files", expected, len(args))}
			}
			var all []*result.Result
			for _, name := range args {
				r, err := result.Read(name)
				if err != nil {
					return err
				}
				all = append(all, r)
			}
			sum, err := result.Merge(all)
			if err != nil {
				return err
			}
			return o.report(cmd.OutOrStdout(), sum)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&expected, "expect-results", 0, "how many files there have to be; 0 is any `number`")
	cmd.Flags().StringVar(&o.out, "out", "", "write the sum to a `file`, as JSON")
	cmd.Flags().StringVar(&o.html, "html", "", "write a report to a `file`, as a page of HTML")
	o.expect.add(cmd)
	return cmd
}
