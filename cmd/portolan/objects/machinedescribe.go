package objects

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// originLabel is a label of a machine, and what has set it.
type originLabel struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// MachineDescription is what machine describe tells. Its JSON form is an API.
type MachineDescription struct {
	metav1.TypeMeta `json:",inline"`
	machine
}

func newMachineDescribeCommand(env *environment) *cobra.Command {
	var output, namespace string
	c := &cobra.Command{
		Use:   "describe NAME",
		Short: "Show what is known of a machine, and where its labels come from",
		Long: `Show what is known of the machine of a WorkloadEntry, or of one without an entry by the
name of its proxy: whether its proxy is connected,
what was last reported of its health, what its agent says of itself, where each label
comes from, and what removes the entry.`,
		Example:           `  portolan machine describe ratings-10.0.0.21 -n shop`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeMachines(env),
		RunE: func(c *cobra.Command, args []string) error {
			m, refused, err := env.machine(c.Context(), entryKey(cmp.Or(namespace, env.Namespace), args[0]))
			switch {
			case err != nil:
				return err
			case output != "table":
				return cli.WriteDocument(env.Stdout, output, MachineDescription{metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "MachineDescription"}, m})
			}
			if err := cli.WriteTable(env.Stdout, m.rows(env.Now())); err != nil {
				return err
			}
			return cli.WriteTable(env.Stdout, refusedMachineRows(refused))
		},
	}
	registerMachineNamespace(c, &namespace)
	cli.RegisterOutput(c, &output, "table", "json", "yaml")
	return c
}

func registerMachineNamespace(c *cobra.Command, namespace *string) {
	c.Flags().StringVarP(namespace, "namespace", "n", "", `namespace of the machine (default $PORTOLAN_NAMESPACE, else "default")`)
}

func entryKey(namespace, name string) config.Key {
	return config.Key{Kind: schema.WorkloadEntry, Namespace: namespace, Name: name}
}

// completeMachines offers the names of the WorkloadEntries of the namespace.
func completeMachines(env *environment) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kind := env.Schemas.Kind(schema.WorkloadEntry)
		return env.namesOf(c.Context(), kind, env.namespaceOf(kind, namespaceGiven(c)), nil), cobra.ShellCompDirectiveNoFileComp
	}
}

// machine returns one machine, with the findings about refused registrations of its group.
func (e *environment) machine(ctx context.Context, key config.Key) (m machine, refused []finding.Finding, err error) {
	proxies, err := e.Proxies(ctx, key.Namespace)
	if err != nil {
		return m, nil, err
	}
	kind := e.Schemas.Kind(schema.WorkloadEntry)
	err = e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		entry, err := c.Get(ctx, client.Resource(kind), key.Namespace, key.Name)
		if apierrors.IsNotFound(err) {
			m, err = e.machineByProxy(ctx, c, key, proxies)
			return err
		} else if err != nil {
			return err
		}
		m = machineOf(entry, proxies)
		var group *unstructured.Unstructured
		if m.Group != "" {
			group, err = c.Get(ctx, client.Resource(e.Schemas.Kind(schema.WorkloadGroup)), key.Namespace, m.Group)
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		m.Labels = originsOf(entry, group)
		refused, err = refusedIn(ctx, c, key.Namespace)
		return err
	})
	refused = slices.DeleteFunc(refused, func(f finding.Finding) bool { return f.Object.Name != m.Group })
	return m, refused, err
}

// machineByProxy returns the machine without an entry whose proxy has a name. Of one that has an
// entry, the error names that.
func (e *environment) machineByProxy(ctx context.Context, c *client.Client, key config.Key, proxies admin.ProxyList) (machine, error) {
	entries, err := c.List(ctx, client.Resource(e.Schemas.Kind(schema.WorkloadEntry)), key.Namespace, client.Selection{})
	if err != nil {
		return machine{}, err
	}
	var with []machine
	for i := range entries.Items {
		with = append(with, machineOf(&entries.Items[i], proxies))
	}
	for _, m := range with {
		if name := cli.NodeName(m.Node); m.Node != "" && (name == key.Name || name == key.Name+"."+key.Namespace) {
			return m, fmt.Errorf("the machine of the proxy %s is %s: give that name", name, m.Name)
		}
	}
	for _, m := range withoutEntry(with, proxies) {
		if m.Namespace == key.Namespace && m.Name == key.Name {
			return m, nil
		}
	}
	return machine{}, fmt.Errorf("no machine of %s has the name %s: portolan machine list -n %s lists them", key.Namespace, key.Name, key.Namespace)
}

// originsOf returns the labels of an entry by key. A label of the group's metadata is before one of
// its template, as in registration.EntryOf; group is nil for an entry by hand.
func originsOf(entry, group *unstructured.Unstructured) []originLabel {
	of, _, _ := unstructured.NestedStringMap(entry.Object, "spec", "labels")
	all := map[string]string{}
	maps.Copy(all, of)
	maps.Copy(all, entry.GetLabels())
	var out []originLabel
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, originLabel{key, all[key], originOf(key, all[key], group)})
	}
	return out
}

func originOf(key, value string, group *unstructured.Unstructured) string {
	if group == nil {
		return "the entry"
	}
	metadata, _, _ := unstructured.NestedStringMap(group.Object, "spec", "metadata", "labels")
	template, _, _ := unstructured.NestedStringMap(group.Object, "spec", "template", "labels")
	allowed := strings.Split(strings.ReplaceAll(group.GetAnnotations()[registration.NodeLabelsAnnotation], " ", ""), ",")
	inMetadata, set := metadata[key]
	inTemplate, templated := template[key]
	switch {
	case set && inMetadata == value:
		return "metadata of the group"
	case !set && templated && inTemplate == value:
		return "template of the group"
	case key == labels.TLSMode:
		return "the certificate of the proxy"
	case slices.Contains(allowed, key), slices.Contains(allowed, "*"):
		return "the node"
	}
	return "an edit of the entry"
}

func (m machine) rows(now time.Time) [][]string {
	facts := m.cells(now)
	rows := [][]string{
		{"machine", m.Namespace + "/" + m.Name},
		{"group", m.group()},
		{"address", cli.Plain(m.Address)},
		{"state", m.state(now)},
	}
	add := func(name, text string) {
		if text != "" {
			rows = append(rows, []string{name, cli.Plain(text)})
		}
	}
	add("drained", m.Drained)
	add("removed", m.Removed)
	if m.Node != "" {
		add("proxy", cli.NodeName(m.Node))
	}
	add("server", cli.ServerName(m.Server))
	healthText := "nobody has reported it"
	if m.Health == nil && m.Awaited {
		healthText += ", and before that it gets no requests"
	}
	if m.Health != nil {
		healthText = m.healthWord()
		if !m.HealthSince.IsZero() {
			healthText += " since " + cli.Age(now, m.HealthSince)
		}
		if m.HealthReason != "" {
			healthText += ": " + m.HealthReason
		}
	}
	if !m.NoEntry {
		add("health", healthText)
	}
	if m.Facts != nil {
		add("agent", facts[0]+", up "+cli.Age(now, m.Facts.AgentSince))
		add("envoy", strings.TrimSpace(m.Facts.Envoy+", up "+facts[2]))
		add("capture", m.Facts.Capture)
		add("bootstrap patches", m.Facts.Patches)
		add("drains itself", m.Facts.Drained)
	}
	add("certificate", facts[1])
	for _, l := range m.Labels {
		rows = append(rows, []string{"label", l.Key + "=" + l.Value, "of " + l.Origin})
	}
	return append(rows, []string{"it goes", m.goes()})
}

// goes says what removes the entry.
func (m machine) goes() string {
	switch {
	case m.NoEntry:
		return "with its proxy's stream. It has no WorkloadEntry: nobody sends to it"
	case m.Removed != "":
		return "with portolan machine remove --end, which lets the machine back"
	case m.Group == "":
		return "when somebody deletes it"
	case m.Drained != "":
		return "some seconds after its proxy, once it is not drained"
	}
	return "some seconds after its proxy, or when the agent says that the machine leaves"
}
