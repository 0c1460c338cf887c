package cli

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// othersTimeout limits each call to another server of the store, which may not be reachable.
const othersTimeout = 3 * time.Second

// ProxiesPath returns the path of the proxies of a namespace, of all if it is empty.
func ProxiesPath(namespace string) string {
	if namespace == "" {
		return admin.ProxiesPath
	}
	return admin.ProxiesPath + "?" + url.Values{"namespace": {namespace}}.Encode()
}

// Proxies returns the proxies of a namespace, of all if it is empty, ordered by node id. It asks
// each server of the store; those that cannot be reached from here stay in Elsewhere.
func (e *Environment) Proxies(ctx context.Context, namespace string) (admin.ProxyList, error) {
	var list admin.ProxyList
	ask := func(into *admin.ProxyList) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error { return c.JSON(ctx, ProxiesPath(namespace), into) }
	}
	if err := e.Call(ctx, ask(&list)); err != nil {
		return list, err
	}
	for _, id := range slices.Sorted(maps.Keys(list.APIs)) {
		var there admin.ProxyList
		if err := e.At(list.APIs[id]).CallFor(ctx, othersTimeout, ask(&there)); err != nil || there.Server != id {
			continue // it stays in Elsewhere
		}
		delete(list.Elsewhere, id)
		delete(list.APIs, id)
		list.Items, list.Refused = append(list.Items, there.Items...), append(list.Refused, there.Refused...)
	}
	slices.SortFunc(list.Items, func(a, b progress.ProxyStatus) int { return strings.Compare(a.Node, b.Node) })
	slices.SortStableFunc(list.Refused, func(a, b admission.Refusal) int { return b.Last.Compare(a.Last) })
	return list, nil
}

// At returns the environment of calls to another server of the store, which runs.
func (e *Environment) At(server string) *Environment {
	return e.With(func(e *Environment) { e.Server, e.Patience = server, 0 })
}
