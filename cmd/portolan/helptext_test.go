package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
)

// eachCommand calls f for each command that people see.
func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	if c.Hidden || c.Name() == "completion" || c.Name() == "help" || c.IsAdditionalHelpTopicCommand() {
		return
	}
	f(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, f)
	}
}

func helpRoot() *cobra.Command {
	return cli.NewRootCommand(&cli.Environment{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}, whole())
}

// TestEveryCommandHasAnExample: a command that does something shows how, in lines that begin
// with it.
func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	eachCommand(helpRoot(), func(c *cobra.Command) {
		if len(c.Commands()) > 0 || !c.Runnable() {
			return
		}
		if !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s has no example of itself", c.CommandPath())
		}
	})
}

// exampleCall matches a call of portolan in an example, up to what the shell adds to it.
var exampleCall = regexp.MustCompile(`(?m)(?:^|[|(] *|&& )(portolan [^|&#;)\n]*)`)

// TestExamplesCanBeTyped: each call in an example is of a command that is there, with flags
// that it has.
func TestExamplesCanBeTyped(t *testing.T) {
	t.Parallel()
	eachCommand(helpRoot(), func(c *cobra.Command) {
		for _, match := range exampleCall.FindAllStringSubmatch(strings.ReplaceAll(strings.ReplaceAll(c.Example, "\n  ", "\n"), "$(date +%F)", "x"), -1) {
			words := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(match[1]))[1:]
			called, rest, err := helpRoot().Find(words)
			if err != nil || called == called.Root() {
				t.Errorf("%s: %q is no command: %v", c.CommandPath(), match[1], err)
				continue
			}
			if called.DisableFlagParsing {
				continue
			}
			if err := called.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", c.CommandPath(), match[1], err)
			}
		}
	})
}

// TestFlagsOfServeHaveHeadings: each flag of serve is listed once, under a heading with few
// others.
func TestFlagsOfServeHaveHeadings(t *testing.T) {
	t.Parallel()
	serve, _, err := helpRoot().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	groups, count := help.Headings(serve.LocalFlags()), 0
	for _, g := range groups {
		n := 0
		g.Flags.VisitAll(func(*pflag.Flag) { n++ })
		if count += n; n > 20 {
			t.Errorf("%d flags are under %q", n, g.Title)
		}
		if g.Title == "Flags" && n > 1 { // --help
			t.Errorf("%d flags have no heading:\n%s", n, g.Flags.FlagUsages())
		}
	}
	all := 0
	serve.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all++
		}
	})
	if len(groups) < 8 || count != all {
		t.Errorf("%d groups with %d of %d flags", len(groups), count, all)
	}
}

// TestGlobalFlagsAreSaidOnce: the help of the root has them, that of other commands says where
// they are.
func TestGlobalFlagsAreSaidOnce(t *testing.T) {
	t.Parallel()
	root := helpRoot()
	eachCommand(root, func(c *cobra.Command) {
		var out bytes.Buffer
		c.SetOut(&out)
		if err := c.Usage(); err != nil {
			t.Fatal(err)
		}
		own := slices.ContainsFunc([]string{"server", "request-timeout"}, func(name string) bool { return c.LocalNonPersistentFlags().Lookup(name) != nil })
		if has := strings.Contains(out.String(), "--request-timeout "); has != (c == root) && !own {
			t.Errorf("%s: lists the global flags: %v", c.CommandPath(), has)
		}
	})
}
