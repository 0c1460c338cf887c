package objects

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/table"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// registered is a proxy that is registered in a group. Its JSON form is an API.
type registered struct {
	// Entry is the name of its WorkloadEntry, and Node its node id.
	Entry   string `json:"entry"`
	Address string `json:"address"`
	Node    string `json:"node"`
	// Server is the server that has its stream, since the time Connected.
	Server    string    `json:"server"`
	Connected time.Time `json:"connected"`
	// Health is as in get workloadentries, and Reason that of the last report.
	Health string `json:"health,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Withdrawn says how people have withdrawn it, and why; empty if they have not.
	Withdrawn string `json:"withdrawn,omitempty"`
}

// registeredIn lists the proxies that are registered in a group.
func (e *environment) registeredIn(ctx context.Context, c *client.Client, group config.Key) ([]registered, error) {
	kind := e.Schemas.Kind(schema.WorkloadEntry)
	list, err := c.List(ctx, client.Resource(kind), group.Namespace, client.Selection{})
	if err != nil {
		return nil, err
	}
	var out []registered
	for _, entry := range list.Items {
		annotations := entry.GetAnnotations()
		if annotations[registration.GroupAnnotation] != group.Name || annotations[registration.NodeAnnotation] == "" {
			continue
		}
		address, _, _ := unstructured.NestedString(entry.Object, "spec", "address")
		since, _ := time.Parse(time.RFC3339Nano, annotations[registration.ConnectedAnnotation]) // zero if somebody has changed it
		out = append(out, registered{
			Entry: entry.GetName(), Address: address, Node: annotations[registration.NodeAnnotation],
			Server: annotations[registration.ServerAnnotation], Connected: since,
			Health: table.Health(typed(kind, &entry, nil)), Reason: reasonOf(&entry),
		})
		if why, withdrawn := health.Withdrawn(annotations); withdrawn {
			out[len(out)-1].Withdrawn = why
		}
	}
	return out, nil
}

func registeredRows(all []registered, now time.Time) [][]string {
	rows := [][]string{{"REGISTERED", "ADDRESS", "PROXY", "SERVER", "SINCE", "HEALTH"}}
	for _, r := range all {
		health := r.Health
		if r.Reason != "" {
			health += ": " + cli.Plain(r.Reason)
		}
		if r.Withdrawn != "" {
			health = cli.Plain(r.Withdrawn)
		}
		rows = append(rows, []string{r.Entry, cli.Plain(r.Address), table.NodeName(r.Node), cli.Plain(r.Server), cli.Age(now, r.Connected), cmp.Or(health, "-")})
	}
	return rows
}

// reasonOf returns why a WorkloadEntry is not healthy, as it was reported last.
func reasonOf(entry *unstructured.Unstructured) string {
	for _, c := range conditionsOf(entry) {
		if c.text("type") == "Healthy" {
			return c.text("message")
		}
	}
	return ""
}
