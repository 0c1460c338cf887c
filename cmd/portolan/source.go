package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

func newSourceCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "source",
		Short: "See the sources of configuration of a server",
		Long: `See the sources of configuration of a server: the store, and the directories of
--config-dir. Where two sources have an object of one kind, namespace and name, that
of the source which is listed first is used alone.`,
	}
	c.AddCommand(newSourceListCommand(env), newSourceDescribeCommand(env))
	return c
}

func newSourceListCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "list",
		Short: "List the sources, the one that goes first at the top",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("-o", output, "", "json", "yaml"); err != nil {
				return err
			}
			return env.call(c.Context(), func(ctx context.Context, api *client.Client) error {
				var list serve.SourceList
				if err := api.JSON(ctx, serve.SourcesPath, &list); err != nil {
					return err
				}
				if output != "" {
					return writeDocument(env.stdout, output, list)
				}
				return env.printSources(list)
			})
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	completeOutput(c, "json", "yaml")
	return c
}

func (e *environment) printSources(list serve.SourceList) error {
	rows := [][]string{{"NAME", "KIND", "OBJECTS", "SHADOWED", "CHANGED", "STATE"}}
	for i := range list.Items {
		s := &list.Items[i]
		objects := 0
		for _, n := range s.Objects {
			objects += n
		}
		rows = append(rows, []string{s.Name, s.Kind, fmt.Sprint(objects), fmt.Sprint(s.Shadowed), sinceChange(e.now(), s), sourceState(s)})
	}
	return writeTable(e.stdout, rows)
}

// sinceChange says how long ago a source changed.
func sinceChange(now time.Time, s *serve.SourceStatus) string {
	if s.Changed == nil {
		return "-"
	}
	return age(now, *s.Changed)
}

// sourceState is how a source is, in a few words.
func sourceState(s *serve.SourceStatus) string {
	switch {
	case s.Problem != "":
		return s.Problem
	case len(s.Faults) == 1:
		return "1 fault"
	case len(s.Faults) > 0:
		return fmt.Sprintf("%d faults", len(s.Faults))
	}
	return "ok"
}

func newSourceDescribeCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "describe NAME",
		Short: "See one source: its objects by kind, and all that is wrong with it",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return env.call(c.Context(), func(ctx context.Context, api *client.Client) error {
				var list serve.SourceList
				if err := api.JSON(ctx, serve.SourcesPath, &list); err != nil {
					return err
				}
				at := slices.IndexFunc(list.Items, func(s serve.SourceStatus) bool { return s.Name == args[0] })
				if at < 0 {
					return fmt.Errorf("there is no source %q: see portolan source list", args[0])
				}
				return env.printSource(&list.Items[at])
			})
		},
	}
}

func (e *environment) printSource(s *serve.SourceStatus) error {
	writes := "no: change it at its source"
	if s.Writable {
		writes = "yes"
	}
	rows := [][]string{{"name", s.Name}, {"kind", s.Kind}, {"where", s.Where}, {"writable", writes}, {"changed", sinceChange(e.now(), s)}}
	if s.LagSeconds != nil {
		rows = append(rows, []string{"lag", fmt.Sprintf("%.1f s", *s.LagSeconds)})
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Objects)) {
		rows = append(rows, []string{kind, fmt.Sprint(s.Objects[kind])})
	}
	rows = append(rows, []string{"shadowed", fmt.Sprint(s.Shadowed)})
	if err := writeTable(e.stdout, rows); err != nil {
		return err
	}
	problems := s.Faults
	if s.Problem != "" {
		problems = slices.Insert(slices.Clone(problems), 0, s.Problem)
	}
	if len(problems) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(e.stdout, "! %s\n", strings.Join(problems, "\n! "))
	return err
}
