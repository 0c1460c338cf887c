package proxies

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	mcp "istio.io/api/mcp/v1alpha1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// byRole divides the connected clients into proxies, and control planes that read objects.
func byRole(all []progress.ProxyStatus) (proxies, controlPlanes []progress.ProxyStatus) {
	for _, p := range all {
		if p.Type == string(discovery.ConfigClient) {
			controlPlanes = append(controlPlanes, p)
		} else {
			proxies = append(proxies, p)
		}
	}
	return proxies, controlPlanes
}

func controlPlaneRows(list admin.ProxyList, now time.Time, wide bool) [][]string {
	_, controlPlanes := byRole(list.Items)
	if len(controlPlanes) == 0 {
		return nil
	}
	header := []string{"CONTROL PLANE", "NS", "KINDS", "STATE", "REV", "SERVER"}
	if wide {
		header = append(header, "VARIANT", "CONNECTED", "STALE")
	}
	rows := [][]string{header}
	for _, p := range controlPlanes {
		row := []string{p.Name, p.Namespace, strconv.Itoa(len(p.Types)), stateOfKinds(p, now), strconv.FormatInt(p.Revision, 10), cli.ServerName(cmp.Or(p.Server, list.Server))}
		if wide {
			row = append(row, p.Variant, cli.Age(now, p.ConnectedSince), cli.Age(now, p.StaleSince))
		}
		rows = append(rows, row)
	}
	return rows
}

// stateOfKinds returns the worst state of a control plane's kinds, and the kinds in that
// state, as in "STALE 3m Gateway, ServiceEntry".
func stateOfKinds(p progress.ProxyStatus, now time.Time) string {
	for _, state := range []protocol.State{protocol.Rejected, protocol.Stale} {
		var kinds []string
		for _, t := range p.Types {
			if t.State == state && !slices.Contains(kinds, t.Name) {
				kinds = append(kinds, t.Name)
			}
		}
		if len(kinds) > 0 {
			return strings.TrimSpace(string(state)+" "+cli.Age(now, p.StaleSince)) + " " + strings.Join(kinds, ", ")
		}
	}
	return string(protocol.Synced)
}

// takenObjectRows lists the objects that a control plane has, or should have.
func takenObjectRows(config *admin.ProxyConfig) ([][]string, error) {
	rows := [][]string{{"KIND", "NAMESPACE", "NAME", "VERSION", "STATE"}}
	for _, t := range config.Types {
		for i := range t.Resources {
			r := &t.Resources[i]
			has, err := r.Has()
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", t.Name, r.Name, err)
			}
			object, _ := has.(*mcp.Resource)
			namespace, name, _ := strings.Cut(r.Name, "/")
			rows = append(rows, []string{t.Name, namespace, name, object.GetMetadata().GetVersion(), string(r.State)})
		}
	}
	return rows, nil
}
