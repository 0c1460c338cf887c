package help

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

// Refine makes a command and all below it report wrong arguments and flags as usage errors that say
// where to read on, with a suggestion where a word is nearly right. Groups of commands refuse unknown
// words. Call it once all commands are there.
func Refine(c *cobra.Command) {
	c.SetFlagErrorFunc(flagError)
	refine(c)
}

func refine(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usageOf(c, err)
			}
			return nil
		}
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args = cobra.ArbitraryArgs // otherwise cobra reports wrong arguments of the root in its own way
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageOf(c, unknownCommand(c, args[0]))
			}
			return c.Help()
		}
	}
	for _, sub := range c.Commands() {
		refine(sub)
	}
}

// NewCommand returns the command that shows the help of a command, and refuses an unknown
// one.
func NewCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Show the help of a command, or of exit-codes",
		RunE: func(c *cobra.Command, args []string) error {
			topic, rest, err := c.Root().Find(args)
			if err != nil || topic.HasSubCommands() && len(rest) > 0 {
				return usageOf(c.Root(), unknownCommand(topic, strings.Join(rest, " ")))
			}
			topic.InitDefaultHelpFlag() // so that the help shows it
			return topic.Help()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			topic, _, err := c.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var out []cobra.Completion
			for _, sub := range topic.Commands() {
				if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
					out = append(out, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// usageOf returns a usage error that says where to read on.
func usageOf(c *cobra.Command, err error) error {
	return exit.With(exit.Usage, fmt.Errorf("%w\nSee '%s --help'", err, c.CommandPath()))
}

// similarCommand says whether a word may stand for a command of a group.
func similarCommand(group *cobra.Command, word string) bool {
	return slices.ContainsFunc(group.Commands(), func(c *cobra.Command) bool { return spelling.Similar(word, c.Name()) })
}

// unknownCommand returns the error for a word that is no command of a group. It suggests
// similar commands of the group, and commands that other tools call by that word.
func unknownCommand(group *cobra.Command, word string) error {
	var meant []string
	for _, c := range group.Commands() {
		if (c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand()) && spelling.Similar(word, c.Name()) {
			meant = append(meant, c.CommandPath())
		}
	}
	var search func(*cobra.Command)
	search = func(c *cobra.Command) {
		if slices.Contains(c.SuggestFor, word) && !slices.Contains(meant, c.CommandPath()) {
			meant = append(meant, c.CommandPath())
		}
		for _, sub := range c.Commands() {
			search(sub)
		}
	}
	search(group.Root())
	return fmt.Errorf("unknown command %q for %q%s", word, group.CommandPath(), DidYouMean(meant))
}

func flagError(c *cobra.Command, err error) error {
	if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 && (c.ValidArgsFunction == nil || similarCommand(c, words[0])) {
		return usageOf(c, unknownCommand(c, words[0])) // the flag belongs to the unknown command
	}
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var valueless *pflag.ValueRequiredError
	switch {
	case errors.As(err, &valueless):
		err = fmt.Errorf("--%s needs a value: %s", valueless.GetFlag().Name, valueless.GetFlag().Usage)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		var meant []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if spelling.Similar(unknown.GetSpecifiedName(), f.Name) {
				meant = append(meant, "--"+f.Name)
			}
		})
		err = fmt.Errorf("%w%s", err, DidYouMean(meant))
	case errors.As(err, &invalid):
		err = fmt.Errorf("--%s %w", invalid.GetFlag().Name, InvalidValue(invalid.GetFlag(), invalid.GetValue(), invalid.Unwrap()))
	}
	return usageOf(c, err)
}

// InvalidValue returns an error that says what a flag accepts instead of an invalid value. cause is
// why it does not accept that.
func InvalidValue(flag *pflag.Flag, value string, cause error) error {
	switch flag.Value.Type() {
	case "duration":
		cause = errors.New("give a time with its unit, such as 30s or 5m")
	case "int", "int64", "uint32":
		cause = errors.New("give a whole number")
	case "bool":
		cause = errors.New("give true or false")
	case "quantity":
		cause = errors.New("give a size, such as 64Mi or 1Gi")
	}
	return fmt.Errorf("%q: %w", value, cause)
}

// DidYouMean returns the end of an error about a word: its likely meanings; empty if there are none.
func DidYouMean(meant []string) string {
	if len(meant) == 0 {
		return ""
	}
	return ": did you mean " + Alternatives(meant) + "?"
}

// Alternatives formats words as "a, b or c".
func Alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
