// Package commandline runs a command line. The error about a verb or flag that does not exist names
// the one that a user may have meant.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Execute runs a command line, and returns the command that it names and its error. A verb without
// Args takes no arguments. usage marks the errors about verbs, arguments and flags. If there is no
// verb or flag of that name, they name the closest one.
func Execute(
	ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer, usage func(error) error,
) (*cobra.Command, error) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.DisableSuggestions, root.SuggestionsMinimumDistance = true, 2 // the error has one
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(flag(cmd, err)) })
	for _, verb := range root.Commands() {
		check := verb.Args
		if check == nil {
			check = noArgs
		}
		verb.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err != nil {
				err = usage(err)
			}
			return err
		}
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil || cmd != root {
		return cmd, err
	}
	if len(args) > 0 {
		if names := root.SuggestionsFor(args[0]); len(names) > 0 {
			err = fmt.Errorf("%w; did you mean %s?", err, names[0])
		}
	}
	return cmd, usage(err)
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// flag returns the error of a command about its flags. If there is no flag of that name, it names
// the closest one.
func flag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	// cobra has the search for similar names, and only for those of commands.
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	if similar := names.SuggestionsFor(unknown.GetSpecifiedName()); len(similar) > 0 {
		return fmt.Errorf("%w; did you mean --%s?", err, similar[0])
	}
	return err
}
