package explain

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// Patch is a patch of an EnvoyFilter on a resource that a request takes.
type Patch struct {
	// Resource is the name of the resource, behind what it is: listener, routes, virtual host or
	// cluster.
	Resource string `json:"resource"`
	// EnvoyFilter is namespace/name, and Field the patch in it, such as "spec.configPatches[0]".
	EnvoyFilter string `json:"envoyFilter"`
	Field       string `json:"field"`
	// Error says why the patch could not be applied, and changed nothing; empty if it applied.
	Error string `json:"error,omitempty"`
	// Rejected is why the proxy refused the resource, if the EnvoyFilter is the cause: it goes on with
	// what it had before.
	Rejected string `json:"rejected,omitempty"`
}

// patchesOn returns the patches of one of some resources that were built for a proxy, which is called
// what.
func (r refusals) patchesOn(proxy *discovery.Proxy, built []generate.Built, typeURL, name, what string) []Patch {
	var out []Patch
	for _, p := range builtAs(built, typeURL, name).Patches {
		out = append(out, Patch{what + " " + name, filterName(p), p.Field(), p.Err, r.dueTo(proxy, typeURL, name, p)})
	}
	return out
}

// builtAs returns one of some built resources, the zero one if it is not among them.
func builtAs(built []generate.Built, typeURL, name string) generate.Built {
	for _, b := range built {
		if b.Name == name && b.Body.GetTypeUrl() == typeURL {
			return b
		}
	}
	return generate.Built{}
}

func filterName(p mesh.PatchNote) string { return p.Filter.Namespace + "/" + p.Filter.Name }

// patches returns the patches of what a request takes, up to its clusters.
func (e *explainer) patches(result simulate.Result) []Patch {
	out := e.refusals.patchesOn(e.proxy, e.built, resource.ListenerType, result.Listener, "listener")
	if result.RouteConfig != "" {
		out = append(out, e.refusals.patchesOn(e.proxy, e.built, resource.RouteType, result.RouteConfig, "routes")...)
		hosts, _ := e.builder.All(resource.VirtualHostType) // they are built, as parts of the routes
		host := strings.TrimPrefix(result.VirtualHost, result.RouteConfig+"/")
		out = append(out, e.refusals.patchesOn(e.proxy, hosts, resource.VirtualHostType, result.RouteConfig+"/"+host, "virtual host")...)
	}
	for _, d := range result.Destinations {
		out = append(out, e.refusals.patchesOn(e.proxy, e.built, resource.ClusterType, d.Cluster, "cluster")...)
	}
	return out
}

// notSimulated says of each filter that the simulation passed over whose it is.
func notSimulated(result simulate.Result) []string {
	var out []string
	for _, f := range result.PassedOver {
		out = append(out, fmt.Sprintf("the filter %s of %s is not simulated: it may answer or change the request", f.Filter, f.By))
	}
	return out
}

// patchedListeners says of built listeners which EnvoyFilters patched them. A filter is of the one
// whose patch names it, else of any of them.
func patchedListeners(push *mesh.PushContext, built []generate.Built) simulate.Patched {
	out := simulate.Patched{}
	for _, b := range built {
		if b.Body.GetTypeUrl() != resource.ListenerType {
			continue
		}
		applied := slices.DeleteFunc(slices.Clone(b.Patches), func(p mesh.PatchNote) bool { return p.Err != "" })
		if len(applied) > 0 {
			out[b.Name] = func(filter string) string { return behind(push, applied, filter) }
		}
	}
	return out
}

// behind names the EnvoyFilters that may have put a filter into a listener, by patches that applied.
func behind(push *mesh.PushContext, applied []mesh.PatchNote, filter string) string {
	var all, named []string
	for _, p := range applied {
		name := p.Filter.String()
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
		object := push.Inputs().Configs.Configs().Value(p.Filter.Path())
		if object == nil {
			continue
		}
		patches := object.Spec.(*networking.EnvoyFilter).GetConfigPatches()
		value := patches[p.Index].GetPatch().GetValue().GetFields()
		if value["name"].GetStringValue() == filter && !slices.Contains(named, name) {
			named = append(named, name)
		}
	}
	if len(named) > 0 {
		all = named
	}
	return strings.Join(all, ", ")
}

// weakenedBy notes the patches of a listener that take away or change what its policies are made of. Those
// that the proxy refused did nothing.
func (a *Access) weakenedBy(e *explainer, proxy *discovery.Proxy, built []generate.Built, listener string) {
	if a == nil || a.Policies == 0 {
		return
	}
	for _, p := range builtAs(built, resource.ListenerType, listener).Patches {
		object := e.push.Inputs().Configs.Get(p.Filter)
		if object == nil || p.Err != "" || e.refusals.dueTo(proxy, resource.ListenerType, listener, p) != "" {
			continue
		}
		for _, f := range envoyfilter.Weakens(object) {
			if f.Field == p.Field() || strings.HasPrefix(f.Field, p.Field()+".") {
				a.Weakened = append(a.Weakened, fmt.Sprintf("%s: %s %s", p.Filter, f.Field, f.Message))
			}
		}
	}
}
