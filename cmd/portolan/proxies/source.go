package proxies

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

func newSourceCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "source",
		Short: "See the sources of configuration of a server",
		Long: `See the sources of configuration of a server: the store, the directories of
--config-dir, the other control planes of --config-source, and the clusters of
--config-kube. Where two sources have an object of one kind, namespace and name, that of
the source which is listed first is used alone. The files of --endpoints-file and the
clusters of --services-kube and of Secrets follow, which have services and no objects,
and those of --secrets-kube, whose secrets are no objects of the mesh.`,
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
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				var list serve.SourceList
				if err := api.JSON(ctx, serve.SourcesPath, &list); err != nil {
					return err
				}
				if output != "" {
					return cli.WriteDocument(env.Stdout, output, list)
				}
				return env.printSources(list)
			})
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

func (e *environment) printSources(list serve.SourceList) error {
	rows := [][]string{{"NAME", "KIND", "OBJECTS", "SHADOWED", "CHANGED", "STATE"}}
	for i := range list.Items {
		s := &list.Items[i]
		rows = append(rows, []string{s.Name, s.Kind, objectCount(s), shadowCount(s), sinceChange(e.Now(), s), sourceState(s)})
	}
	return cli.WriteTable(e.Stdout, rows)
}

// objectCount returns how many objects a source has, or how many services an endpoint file
// has.
func objectCount(s *serve.SourceStatus) string {
	if s.Endpoints != nil {
		return cli.CountOf(s.Endpoints.Services, "service")
	}
	return fmt.Sprint(s.ObjectCount())
}

func shadowCount(s *serve.SourceStatus) string {
	if s.Endpoints != nil {
		return "-"
	}
	return fmt.Sprint(s.Shadowed)
}

// sinceChange says how long ago a source changed.
func sinceChange(now time.Time, s *serve.SourceStatus) string {
	if s.Changed == nil {
		return "-"
	}
	return cli.Age(now, *s.Changed)
}

// sourceState returns the state of a source in a few words: all that is wrong, counts first.
func sourceState(s *serve.SourceStatus) string {
	var parts []string
	if len(s.Faults) > 0 {
		parts = append(parts, faultCount(len(s.Faults), s.Refused))
	}
	switch {
	case s.Absent:
		parts = append(parts, "not on this server")
	case len(s.Differs) > 0:
		parts = append(parts, "differs from "+cli.CountOf(len(s.Differs), "server"))
	}
	if s.Problem != "" {
		parts = append(parts, s.Problem)
	}
	return cmp.Or(strings.Join(parts, "; "), "ok")
}

// faultCount says how much of something is refused, and how many of its faults are warnings.
func faultCount(faults, refused int) string {
	var parts []string
	if refused > 0 {
		parts = append(parts, cli.CountOf(refused, "fault"))
	}
	if warnings := faults - refused; warnings > 0 {
		parts = append(parts, cli.CountOf(warnings, "warning"))
	}
	return strings.Join(parts, ", ")
}

func newSourceDescribeCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "describe NAME",
		Short: "See one source: its objects by kind, and all that is wrong with it",
		Long: fmt.Sprintf(`See one source: its objects by kind with their places, and all that is wrong with it. Of
each kind it prints the first %d; -o json has all.`, shownObjects),
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeSources(env),
		RunE: func(c *cobra.Command, args []string) error {
			var description SourceDescription
			err := env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				return description.read(ctx, api, args[0])
			})
			switch {
			case err != nil:
				return err
			case output != "":
				return cli.WriteDocument(env.Stdout, output, description)
			}
			return env.printSource(&description)
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

// SourceDescription is all that describe tells of a source. Its JSON form is an API.
type SourceDescription struct {
	serve.SourceStatus `json:",inline"`
	Items              []serve.SourceObject `json:"items"`
}

func (d *SourceDescription) read(ctx context.Context, api *client.Client, name string) error {
	var list serve.SourceList
	if err := api.JSON(ctx, serve.SourcesPath, &list); err != nil {
		return err
	}
	at := slices.IndexFunc(list.Items, func(s serve.SourceStatus) bool { return s.Name == name })
	if at < 0 {
		return fmt.Errorf("there is no source %q: see portolan source list", name)
	}
	var objects serve.SourceObjects
	if err := api.JSON(ctx, serve.SourceObjectsPath+"?"+url.Values{"name": {name}}.Encode(), &objects); err != nil {
		return err
	}
	d.SourceStatus, d.Items = list.Items[at], objects.Items
	return nil
}

// shownObjects is how many objects of a kind describe prints.
const shownObjects = 100

func (e *environment) printSource(d *SourceDescription) error {
	s := &d.SourceStatus
	writes := "no: change it at its source"
	if s.Writable {
		writes = "yes"
	}
	rows := [][]string{{"name", s.Name}, {"kind", s.Kind}, {"where", s.Where}, {"writable", writes}, {"state", sourceState(s)}}
	if s.Endpoints != nil {
		rows = append(rows, []string{"services", fmt.Sprint(s.Endpoints.Services)}, []string{"targets", fmt.Sprint(s.Endpoints.Targets)})
	} else {
		rows = append(rows, []string{"changed", sinceChange(e.Now(), s)})
	}
	if s.LagSeconds != nil {
		rows = append(rows, []string{"lag", fmt.Sprintf("%.1f s", *s.LagSeconds)})
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Objects)) {
		rows = append(rows, []string{kind, fmt.Sprint(s.Objects[kind])})
	}
	if s.Endpoints == nil {
		rows = append(rows, []string{"shadowed", fmt.Sprint(s.Shadowed)})
	}
	if err := cli.WriteTable(e.Stdout, rows); err != nil {
		return err
	}
	if err := e.PrintSection(sourceObjectRows(d.Items)); err != nil {
		return err
	}
	problems := slices.Concat(s.Details, s.Faults, s.Differs)
	if s.Problem != "" && len(s.Details) == 0 {
		problems = slices.Insert(problems, 0, s.Problem)
	}
	if len(problems) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(e.Stdout, "\n! %s\n", strings.Join(problems, "\n! "))
	return err
}

// sourceObjectRows returns rows for the first objects of each kind.
func sourceObjectRows(all []serve.SourceObject) [][]string {
	if len(all) == 0 {
		return nil
	}
	rows := [][]string{{"OBJECT", "PLACE", "STATE"}}
	counts := map[string]int{}
	for i := range all {
		o := &all[i]
		switch counts[o.Kind]++; {
		case counts[o.Kind] <= shownObjects:
			key := config.Key{Kind: config.GroupVersionKind{Kind: o.Kind}, Namespace: o.Namespace, Name: o.Name}
			rows = append(rows, []string{key.String(), o.Place, sourceObjectState(o)})
		case i+1 == len(all) || all[i+1].Kind != o.Kind:
			rows = append(rows, []string{fmt.Sprintf("%s: %d more", strings.ToLower(o.Kind), counts[o.Kind]-shownObjects)})
		}
	}
	return rows
}

func sourceObjectState(o *serve.SourceObject) string {
	var parts []string
	if o.ShadowedBy != "" {
		parts = append(parts, "shadowed by "+o.ShadowedBy)
	}
	if len(o.Faults) > 0 {
		parts = append(parts, faultCount(len(o.Faults), o.Refused))
	}
	for _, code := range o.Issues {
		if kind := verdict.Code(code).Kind(); kind.Code != "" { // a newer server has more codes
			code = kind.Severity.String() + " " + code
		}
		parts = append(parts, code)
	}
	if len(parts) == 0 {
		return "ok"
	}
	return strings.Join(parts, ", ")
}
