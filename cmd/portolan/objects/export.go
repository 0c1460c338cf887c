package objects

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	yamlv2 "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/table"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

type exportOptions struct {
	namespace     string
	allNamespaces bool
	revision      int64
	output        string
}

func newExportCommand(env *environment) *cobra.Command {
	var o exportOptions
	c := &cobra.Command{
		Use:   "export [KIND...]",
		Short: "Write all configuration of the store as text, as of one revision",
		Long: `Write all configuration of the store as text, as of one revision: objects of all
kinds and namespaces in the order of group, kind, namespace and name, without what
only the server sets, save for creation times, which decide between objects that
contend, and for the health of workloads: the condition Healthy in the status of a
WorkloadEntry, which an import takes over. An export of an earlier --revision has no
health.
The same configuration and health are the same text, so it can be kept in git, and read
by any version, whatever becomes of etcd; portolan import puts it back.

Secrets are left out: no document has their data. So are PeerPhases and KeySets,
which servers write themselves. What comes from elsewhere, such as a directory or
a cluster of Kubernetes (portolan source list), stays there and is left out, too.

It is not all of the store: history and what belongs to etcd are in a snapshot
(portolan store backup).`,
		Example: `  portolan export > mesh.yaml
  portolan export -n shop virtualservices,destinationrules
  portolan export --revision 812`,
		ValidArgsFunction: completeKinds(env),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := o.scope(env, args)
			if err != nil {
				return err
			}
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				then, err := s.at(ctx, api, o.revision)
				if err != nil {
					return err
				}
				if err := env.tellLeftOut(ctx, api, s); err != nil {
					return err
				}
				return o.write(env.Stdout, exported(then, o.revision == 0))
			})
		},
	}
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace to export (default all)")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "export all namespaces, as without -n")
	f.Int64Var(&o.revision, "revision", 0, "export what was at a revision (default now)")
	cli.RegisterOutput(c, &o.output, "yaml", "json")
	return c
}

// scope reads the flags and the arguments.
func (o *exportOptions) scope(env *environment, args []string) (scope, error) {
	if o.revision != 0 {
		if err := checkRevision("--revision", o.revision); err != nil {
			return scope{}, err
		}
	}
	if kinds := strings.Join(args, ","); strings.Contains(kinds, "/") {
		return scope{}, exit.With(exit.Usage, fmt.Errorf("%s: export takes kinds: one object is shown by portolan get %[1]s -o yaml", kinds))
	} else if kinds != "" {
		args = []string{kinds}
	}
	return newScope(env, args, o.namespace, o.allNamespaces || o.namespace == "")
}

// exported returns the objects of a state in canonical order, without the objects and fields
// that only servers write. Of statuses it has at most the health, which an import takes over.
func exported(then state, withHealth bool) []*unstructured.Unstructured {
	var keys []config.Key
	for key := range then.objects {
		if !schema.WrittenByServers(key.Kind) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b config.Key) int {
		return cmp.Or(cmp.Compare(a.Kind.Group, b.Kind.Group), cmp.Compare(a.Kind.Kind, b.Kind.Kind),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	out := make([]*unstructured.Unstructured, len(keys))
	for i, key := range keys {
		out[i] = then.objects[key].DeepCopy()
		for _, field := range []string{"resourceVersion", "uid", "generation"} {
			unstructured.RemoveNestedField(out[i].Object, "metadata", field)
		}
		status := healthIn(out[i])
		delete(out[i].Object, "status")
		if withHealth && status != nil && key.Kind == schema.WorkloadEntry {
			out[i].Object["status"] = status
		}
	}
	return out
}

// healthIn returns the status of an object with its condition Healthy alone, nil without one.
func healthIn(object *unstructured.Unstructured) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if one, ok := c.(map[string]any); ok && one["type"] == health.ConditionType {
			return map[string]any{"conditions": []any{one}}
		}
	}
	return nil
}

// write prints objects as YAML documents, or as a list in JSON.
func (o *exportOptions) write(out io.Writer, objects []*unstructured.Unstructured) error {
	if o.output == "json" {
		items := make([]any, len(objects))
		for i, object := range objects {
			items[i] = object.Object
		}
		return cli.WriteDocument(out, "json", listOf(items))
	}
	for _, object := range objects {
		text, err := yamlv2.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("write %s/%s as YAML: %w", object.GetNamespace(), object.GetName(), err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

// tellLeftOut warns of what a server has and does not export: objects of the store that it cannot read, and
// those of a scope that other sources have now.
func (e *environment) tellLeftOut(ctx context.Context, c *client.Client, in scope) error {
	status, err := remote.Server{Client: c}.StoreStatus(ctx)
	if err != nil { // a user without permission gets no warning
		return nil
	}
	var warnings []string
	if status.Quarantined > 0 {
		warnings = append(warnings, fmt.Sprintf("%d objects of the store cannot be read and are left out: see portolan store quarantine list", status.Quarantined))
	}
	some := func(s maintenance.SourceStatus) bool { return s.Objects > 0 }
	if slices.ContainsFunc(status.Sources, some) {
		counts, err := in.ofSources(ctx, c)
		if err != nil {
			return err
		}
		for _, s := range status.Sources {
			are := "are"
			if counts[s.Name] == 1 {
				are = "is"
			}
			if counts[s.Name] > 0 {
				warnings = append(warnings, fmt.Sprintf("%s of the %s %s %s not of the store and %[4]s left out: see portolan source describe %[3]s", cli.CountOf(counts[s.Name], "object"), s.Kind, s.Name, are))
			}
		}
	}
	e.Warn(warnings)
	return nil
}

// ofSources counts the objects of other sources than the store, by the name of the source.
func (s scope) ofSources(ctx context.Context, c *client.Client) (map[string]int, error) {
	out := map[string]int{}
	for _, p := range s.places() {
		list, err := c.List(ctx, client.Resource(p.kind), p.namespace, client.Selection{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if object := &list.Items[i]; !ofStore(object) {
				out[table.Source(object.GetAnnotations())]++
			}
		}
	}
	return out, nil
}
