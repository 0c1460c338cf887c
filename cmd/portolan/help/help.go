// Package help writes the help of commands, with flags under headings, and says what is wrong with a
// command line.
package help

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// headingKey is the annotation of a flag with the heading under which the help lists it.
const headingKey = "portolan-heading"

// Under puts the flags that register adds under a heading of the help.
func Under(f *pflag.FlagSet, heading string, register func()) {
	before := map[string]bool{}
	f.VisitAll(func(flag *pflag.Flag) { before[flag.Name] = true })
	register()
	f.VisitAll(func(flag *pflag.Flag) {
		if !before[flag.Name] {
			_ = f.SetAnnotation(flag.Name, headingKey, []string{heading}) // the flag exists
		}
	})
}

// WriteUsage writes the part of a command's help after its description. It is like that of
// cobra, with flags under headings, and with the flags of all commands in the help of the root
// alone.
func WriteUsage(c *cobra.Command) error {
	var out strings.Builder
	out.WriteString("Usage:")
	if c.Runnable() {
		out.WriteString("\n  " + c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		out.WriteString("\n  " + c.CommandPath() + " [command]")
	}
	out.WriteString("\n")
	section := func(title, text string) {
		if text = strings.TrimRight(text, " \n"); text != "" {
			fmt.Fprintf(&out, "\n%s:\n%s\n", title, text)
		}
	}
	if len(c.Aliases) > 0 {
		section("Aliases", "  "+c.NameAndAliases())
	}
	section("Examples", c.Example)
	section("Available Commands", subcommandsOf(c, (*cobra.Command).IsAvailableCommand))
	for _, group := range Headings(c.LocalFlags()) {
		section(group.Title, group.Flags.FlagUsages())
	}
	section("Additional help topics", subcommandsOf(c, (*cobra.Command).IsAdditionalHelpTopicCommand))
	if c.HasAvailableInheritedFlags() {
		what := "of all commands"
		if c.Root().PersistentFlags().Lookup("server") != nil {
			what = "that say which server to call, and as whom,"
		}
		fmt.Fprintf(&out, "\nThe flags %s are in %s --help.\n", what, c.Root().Name())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&out, "\nUse \"%s [command] --help\" for more information about a command.\n", c.CommandPath())
	}
	_, err := io.WriteString(c.OutOrStderr(), out.String())
	return err
}

// subcommandsOf lists the subcommands of a kind, a line each.
func subcommandsOf(c *cobra.Command, is func(*cobra.Command) bool) string {
	var out strings.Builder
	for _, sub := range c.Commands() {
		if is(sub) {
			fmt.Fprintf(&out, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
	return out.String()
}

// Group is the flags under one heading.
type Group struct {
	Title string
	Flags *pflag.FlagSet
}

// NoHeading is the title of the group of flags without a heading.
const NoHeading = "Flags"

// Headings divides flags by their headings, in the order in which these first came. Flags
// without one come first.
func Headings(all *pflag.FlagSet) []Group {
	var out []Group
	add := func(title string, flag *pflag.Flag) {
		for _, g := range out {
			if g.Title == title {
				g.Flags.AddFlag(flag)
				return
			}
		}
		g := Group{title, pflag.NewFlagSet(title, pflag.ContinueOnError)}
		g.Flags.SortFlags = all.SortFlags
		g.Flags.AddFlag(flag)
		out = append(out, g)
	}
	all.VisitAll(func(flag *pflag.Flag) {
		if len(flag.Annotations[headingKey]) == 0 && !flag.Hidden {
			add(NoHeading, flag)
		}
	})
	all.VisitAll(func(flag *pflag.Flag) {
		if h := flag.Annotations[headingKey]; len(h) > 0 && !flag.Hidden {
			add(h[0], flag)
		}
	})
	return out
}
