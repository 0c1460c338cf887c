package objects

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// MachineCommands returns the commands about machines of the mesh: those that have a WorkloadEntry,
// and those whose agent is connected.
func MachineCommands(line *cli.Environment) []*cobra.Command {
	env := &environment{line}
	return []*cobra.Command{newMachineListCommand(env), newMachineDescribeCommand(env), newMachineDrainCommand(env), newMachineRemoveCommand(env)}
}

// machine is what is known of a machine. Its JSON form is an API.
type machine struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// NoEntry says that no WorkloadEntry is the machine's, so that nobody sends to it. Its Name is
	// that of its proxy then, else that of the entry.
	NoEntry bool `json:"noEntry,omitempty"`
	// Group is the WorkloadGroup in which it is registered; empty for an entry by hand.
	Group   string `json:"group,omitempty"`
	Address string `json:"address,omitempty"`
	Node    string `json:"node,omitempty"`
	// Connected says whether its proxy is connected, to Server, else it is away since Seen; the
	// zero time if it was not seen within a day.
	Connected bool      `json:"connected"`
	Server    string    `json:"server,omitempty"`
	Seen      time.Time `json:"seen,omitzero"`
	Drained   string    `json:"drained,omitempty"` // why
	Removed   string    `json:"removed,omitempty"` // why
	// Health is true or false as it was last reported, and HealthReason why; nil without a report.
	Health       *bool     `json:"healthy,omitempty"`
	HealthReason string    `json:"healthReason,omitempty"`
	HealthSince  time.Time `json:"healthSince,omitzero"`
	// Awaited says that the machine gets no requests before it is reported healthy.
	Awaited bool `json:"awaited,omitempty"`
	// Facts are what its agent says; nil without one.
	Facts           *node.Facts   `json:"facts,omitempty"`
	CertificateEnds time.Time     `json:"certificateEnds,omitzero"`
	Labels          []originLabel `json:"labels,omitempty"`
}

// MachineList is what machine list tells. Its JSON form is an API.
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []machine `json:"items"`
	// Refused are the findings about registrations that were refused.
	Refused []finding.Finding `json:"refused,omitempty"`
}

func newMachineListCommand(env *environment) *cobra.Command {
	var output, namespace string
	var all bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the machines of the mesh, and the registrations that were refused",
		Long: `List the WorkloadEntries of a namespace with what is known of their machines, and the
machines whose agent is connected and that have no entry: nobody sends to these.

STATE says whether the proxy of the machine is connected to a server, and whether people
have drained or removed the machine. HEALTH is what was last reported of its workload:
a connected machine may be unhealthy. AGENT is the version of its portolan-agent,
CERTIFICATE how long its certificate is good, UP since when its Envoy runs.`,
		Example: `  portolan machine list -n shop
  portolan machine list -A -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			in := cmp.Or(namespace, env.Namespace)
			if all {
				in = ""
			}
			list, err := env.machines(c.Context(), in)
			switch {
			case err != nil:
				return err
			case output != "table":
				return cli.WriteDocument(env.Stdout, output, list)
			}
			return env.printMachines(list, all)
		},
	}
	f := c.Flags()
	f.StringVarP(&namespace, "namespace", "n", "", `namespace of the machines (default $PORTOLAN_NAMESPACE, else "default")`)
	f.BoolVarP(&all, "all-namespaces", "A", false, "the machines of all namespaces")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	cli.RegisterOutput(c, &output, "table", "json", "yaml")
	return c
}

// machines returns the machines of a namespace, of all if it is empty.
func (e *environment) machines(ctx context.Context, namespace string) (MachineList, error) {
	out := MachineList{TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "MachineList"}, Items: []machine{}}
	proxies, err := e.Proxies(ctx, namespace)
	if err != nil {
		return out, err
	}
	err = e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		entries, err := c.List(ctx, client.Resource(e.Schemas.Kind(schema.WorkloadEntry)), namespace, client.Selection{})
		if err != nil {
			return err
		}
		for i := range entries.Items {
			out.Items = append(out.Items, machineOf(&entries.Items[i], proxies))
		}
		out.Items = append(out.Items, withoutEntry(out.Items, proxies)...)
		slices.SortStableFunc(out.Items, func(a, b machine) int { return cmp.Compare(a.Namespace, b.Namespace) })
		out.Refused, err = refusedIn(ctx, c, namespace)
		return err
	})
	return out, err
}

// withoutEntry returns the machines whose agent is connected and that are none of the others, by node id.
func withoutEntry(others []machine, proxies admin.ProxyList) (out []machine) {
	known := map[string]bool{}
	for _, m := range others {
		known[m.Node] = true
	}
	for _, p := range proxies.Items {
		if p.Machine != nil && !known[p.Node] {
			known[p.Node] = true // while it is replaced it has two streams
			m := machine{Name: p.Name, Namespace: p.Namespace, NoEntry: true}
			if parts := strings.Split(p.Node, "~"); len(parts) == 4 {
				m.Address = parts[1]
			}
			m.connect(p, proxies.Server)
			out = append(out, m)
		}
	}
	return out
}

// connect notes the proxy of the machine, which a server has told of.
func (m *machine) connect(p progress.ProxyStatus, teller string) {
	m.Node, m.Connected, m.Server, m.Facts, m.CertificateEnds = p.Node, true, cmp.Or(p.Server, teller), p.Machine, p.CertificateEnds
}

// refusedIn returns the findings about refused registrations in a namespace, in all if it is empty.
func refusedIn(ctx context.Context, c *client.Client, namespace string) (out []finding.Finding, err error) {
	found, err := c.Findings(ctx, namespace, nil)
	if err != nil {
		return nil, err
	}
	for _, f := range found.Items {
		if f.Code == string(verdict.RegistrationRefused) {
			out = append(out, f)
		}
	}
	return out, nil
}

// machineOf joins an entry with its proxy.
func machineOf(entry *unstructured.Unstructured, proxies admin.ProxyList) machine {
	annotations := entry.GetAnnotations()
	m := machine{
		Name: entry.GetName(), Namespace: entry.GetNamespace(), Node: annotations[registration.NodeAnnotation],
		Drained: annotations[health.DrainedAnnotation], Removed: annotations[health.RemovedAnnotation], Awaited: health.Checked(annotations),
	}
	m.Address, _, _ = unstructured.NestedString(entry.Object, "spec", "address")
	if m.Node != "" {
		m.Group = annotations[registration.GroupAnnotation]
	}
	for _, c := range conditionsOf(entry) {
		if c.text("type") == "Healthy" {
			healthy := c.text("status") == "True"
			m.Health, m.HealthReason = &healthy, strings.TrimSpace(c.text("reason")+" "+c.text("message"))
			m.HealthSince, _ = time.Parse(time.RFC3339, c.text("lastTransitionTime"))
		}
	}
	if i := slices.IndexFunc(proxies.Items, func(p progress.ProxyStatus) bool { return p.Namespace == m.Namespace && m.isAt(p.Node) }); i >= 0 {
		m.connect(proxies.Items[i], proxies.Server)
		return m
	}
	for _, g := range proxies.Gone {
		if m.isAt(g.Node) && cmp.Or(g.Namespace, m.Namespace) == m.Namespace {
			m.Node, m.Seen = g.Node, g.Seen
			return m
		}
	}
	server := annotations[registration.ServerAnnotation]
	if _, unasked := proxies.Elsewhere[server]; unasked && m.Group != "" && m.Drained == "" && m.Removed == "" { // it renews the lease, and cannot be asked from here
		m.Connected, m.Server = true, server
	}
	return m
}

// isAt says whether a node is the machine's: that which registered it, else one of its address.
func (m machine) isAt(id string) bool {
	if m.Group != "" {
		return id == m.Node
	}
	parts := strings.Split(id, "~")
	return len(parts) == 4 && parts[1] == m.Address
}

func (m machine) state(now time.Time) string {
	state := "away"
	switch {
	case m.Connected:
		state = "connected"
	case !m.Seen.IsZero():
		state = "away " + cli.Age(now, m.Seen)
	}
	switch {
	case m.Removed != "":
		state += ", removed"
	case m.Drained != "":
		state += ", drained"
	}
	return state
}

// group says to which group the machine belongs.
func (m machine) group() string {
	if m.NoEntry {
		return "no entry"
	}
	return cmp.Or(m.Group, "by hand")
}

func (m machine) healthWord() string {
	switch {
	case m.Health == nil && m.Awaited:
		return "UNKNOWN"
	case m.Health == nil:
		return ""
	case *m.Health:
		return "healthy"
	}
	return "UNHEALTHY"
}

// cells are the version of the agent, how long the certificate is good, and since when Envoy runs.
func (m machine) cells(now time.Time) []string {
	facts := cmp.Or(m.Facts, &node.Facts{})
	return []string{cli.Plain(facts.Agent), cli.Ends(now, m.CertificateEnds), cli.Age(now, facts.EnvoySince)}
}

func (e *environment) printMachines(list MachineList, all bool) error {
	head := []string{"NAME", "GROUP", "ADDRESS", "STATE", "HEALTH", "AGENT", "CERTIFICATE", "UP"}
	if all {
		head = slices.Insert(head, 0, "NAMESPACE")
	}
	rows := [][]string{head}
	for _, m := range list.Items {
		row := append([]string{m.Name, m.group(), cli.Plain(m.Address), m.state(e.Now()), m.healthWord()}, m.cells(e.Now())...)
		if all {
			row = slices.Insert(row, 0, m.Namespace)
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		fmt.Fprintln(e.Stderr, "There are no machines.")
	} else if err := cli.WriteTable(e.Stdout, rows); err != nil {
		return err
	}
	return cli.WriteTable(e.Stdout, refusedMachineRows(list.Refused))
}

func refusedMachineRows(refused []finding.Finding) (rows [][]string) {
	for _, f := range refused {
		rows = append(rows, []string{"  refused", "workloadgroup/" + f.Object.Namespace + "/" + f.Object.Name, cli.Plain(f.Text())})
	}
	return rows
}
