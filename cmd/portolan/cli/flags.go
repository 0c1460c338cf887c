package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
)

// OneOf returns an error if the value of a flag is none of the known ones. An empty value
// means the default.
func OneOf(flag, value string, known ...string) error {
	for _, k := range known {
		if value == k {
			return nil
		}
	}
	known = slices.DeleteFunc(slices.Clone(known), func(k string) bool { return k == "" })
	return exit.With(exit.Usage, fmt.Errorf("%s %q: use %s", flag, value, help.Alternatives(known)))
}

// OneScope refuses -A, which is all namespaces, beside -n, which is one.
func OneScope(all, one bool) error {
	if all && one {
		return exit.With(exit.Usage, errors.New("-A is all namespaces, and -n is one: leave one of them out"))
	}
	return nil
}

// RegisterOutput adds -o to a command, which then refuses every value but the known ones. The
// first is the default; "" is the form for people.
func RegisterOutput(c *cobra.Command, output *string, known ...string) {
	forms := known
	if forms[0] == "" {
		forms = forms[1:]
	}
	c.Flags().StringVarP(output, "output", "o", known[0], "form of the output: "+help.Alternatives(forms))
	CompleteOutput(c, forms...)
	c.PreRunE = func(*cobra.Command, []string) error { return OneOf("-o", *output, known...) }
}

// CompleteOutput offers the values of -o.
func CompleteOutput(c *cobra.Command, values ...string) {
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// OrDidYouMean is like help.DidYouMean, after other advice.
func OrDidYouMean(meant []string) string {
	return strings.Replace(help.DidYouMean(meant), ": ", ", or ", 1)
}

// ErrDifferences is the error of a diff that found some. Only the exit code shows it.
var ErrDifferences = exit.Quietly(exit.Differences, "there are differences")

// Nowhere is the label of the side of a diff on which there is no object.
const Nowhere = "/dev/null"

// Warn prints each warning once in the life of a command. infos are the indexes of those that only
// inform.
func (e *Environment) Warn(warnings []string, infos ...int) {
	for i, w := range warnings {
		if _, again := e.warned.LoadOrStore(w, true); again {
			continue
		}
		if slices.Contains(infos, i) {
			fmt.Fprintf(e.Stderr, "Info: %s\n", w)
			continue
		}
		e.PrintWarning(w)
	}
}

// PrintWarning prints a warning, also if it was printed before.
func (e *Environment) PrintWarning(warning string) {
	fmt.Fprintf(e.Stderr, "%s %s\n", odd.on(e.Stderr, "Warning:"), warning)
}
