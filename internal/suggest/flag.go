// Package suggest names the flag that a user may have meant.
package suggest

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Flag returns the error of a command about its flags. If there is no flag of that name, it names
// the closest one.
func Flag(cmd *cobra.Command, err error) error {
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
