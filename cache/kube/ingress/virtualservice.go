package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Hosts returns the hosts for which an Ingress has routes, sorted, each once. A rule without a host
// and the default backend are for "*".
func Hosts(object *config.Config) []string {
	spec := object.Spec.(*networkingv1.IngressSpec)
	var out []string
	for _, rule := range spec.Rules {
		if rule.HTTP != nil {
			out = append(out, cmp.Or(rule.Host, anyHost))
		}
	}
	if spec.DefaultBackend != nil {
		out = append(out, anyHost)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Services returns the hosts of the services whose ports an Ingress names, sorted, each once.
func Services(object *config.Config) []string {
	var out []string
	for _, r := range routesOf(object, anyHost, true) {
		if service := r.backend.Service; service != nil && service.Port.Name != "" {
			out = append(out, ServiceHost(object, service.Name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ServiceHost returns the host of a service that an Ingress names.
func ServiceHost(object *config.Config, name string) string {
	return name + "." + object.Namespace + ".svc." + object.Domain
}

// VirtualServiceKey returns the key of the VirtualService of a host. The first of its Ingresses names
// it. Two hosts may have the same one, such as a-b.example and a.b.example.
func VirtualServiceKey(host string, first *config.Config) config.Key {
	return config.Key{Kind: schema.VirtualService, Namespace: first.Namespace, Name: strings.ReplaceAll(host, ".", "-") + "-" + first.Name + "-" + suffix}
}

// VirtualService derives the VirtualService of a host with a key, from all Ingresses in effect that
// have the host, the oldest first. Longer paths go before shorter ones, exact paths before prefixes
// of the same length, and then those of older Ingresses. The default backend of an Ingress takes what
// is left for its hosts. It returns nil if there is no route.
//
// Two things are otherwise than in Istio: the VirtualService is for the Gateways of all Ingresses
// that have routes in it, and default backends count.
func VirtualService(host string, all []*config.Config, key config.Key, o Options) *Derived {
	var routes []route
	for _, object := range all {
		if o.Refused == nil || !o.Refused(object, host) {
			routes = append(routes, routesOf(object, host, false)...)
		}
	}
	slices.SortStableFunc(routes, compareRoutes)
	spec := &networking.VirtualService{Hosts: []string{host}, ExportTo: []string{"*"}}
	out := &Derived{}
	for _, r := range routes {
		http := r.http(o)
		if http == nil {
			continue
		}
		spec.Http = append(spec.Http, http)
		out.Routes = append(out.Routes, Place{r.of.Key(), r.field})
	}
	for _, object := range all {
		if slices.ContainsFunc(out.Routes, func(p Place) bool { return p.Ingress == object.Key() }) {
			out.From = append(out.From, object.Key())
			spec.Gateways = append(spec.Gateways, o.Root+"/"+gatewayName(object))
		}
	}
	if len(out.From) == 0 {
		return nil
	}
	out.Object = derivedFrom(all[0], key, spec)
	return out
}

// DefaultBackend is the Field of the Place of a default backend.
const DefaultBackend = "spec.defaultBackend"

// route is a path of an Ingress, or its default backend.
type route struct {
	of       *config.Config
	field    string
	uri      *networking.StringMatch // nil for any path
	fallback bool                    // it is the default backend
	backend  *networkingv1.IngressBackend
}

// routesOf returns the routes of an Ingress for a host, in the order of its fields; those for all
// hosts, if all is set.
func routesOf(object *config.Config, host string, all bool) (out []route) {
	spec := object.Spec.(*networkingv1.IngressSpec)
	has := host == anyHost
	for i, rule := range spec.Rules {
		if rule.HTTP == nil || !all && cmp.Or(rule.Host, anyHost) != host {
			continue
		}
		has = true
		for k, path := range rule.HTTP.Paths {
			out = append(out, route{of: object, field: fmt.Sprintf("spec.rules[%d].http.paths[%d]", i, k), uri: uriOf(path), backend: &path.Backend})
		}
	}
	if spec.DefaultBackend != nil && has {
		out = append(out, route{of: object, field: DefaultBackend, fallback: true, backend: spec.DefaultBackend})
	}
	return out
}

// uriOf returns the match of a path, nil for one that matches any. (Istio: createFallbackStringMatch.)
func uriOf(p networkingv1.HTTPIngressPath) *networking.StringMatch {
	exact := func(path string) *networking.StringMatch {
		return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: path}}
	}
	prefix := func(path string) *networking.StringMatch {
		return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: path}}
	}
	if p.PathType != nil && *p.PathType == networkingv1.PathTypeExact {
		return exact(p.Path)
	}
	if p.PathType != nil && *p.PathType == networkingv1.PathTypePrefix {
		return prefix(p.Path)
	}
	switch p.Path {
	case "", "*", "/*", ".*":
		return nil
	}
	for _, end := range []string{".*", "/*"} {
		if before, found := strings.CutSuffix(p.Path, end); found {
			return prefix(before)
		}
	}
	return exact(p.Path)
}

// compareRoutes orders the routes of a host. (Istio: sortHTTPRoutes.)
func compareRoutes(a, b route) int {
	rank := func(r route) (length, kind int) {
		switch m := r.uri.GetMatchType().(type) {
		case *networking.StringMatch_Exact:
			return len(m.Exact), 0
		case *networking.StringMatch_Prefix:
			return len(m.Prefix), 1
		}
		return -1, 1
	}
	if a.fallback != b.fallback {
		if b.fallback {
			return -1
		}
		return 1
	}
	aLength, aKind := rank(a)
	bLength, bKind := rank(b)
	return cmp.Or(cmp.Compare(bLength, aLength), cmp.Compare(aKind, bKind))
}

// http returns the route as a VirtualService has it; nil if its service has no port of the name.
func (r route) http(o Options) *networking.HTTPRoute {
	service := r.backend.Service
	if service == nil {
		return nil
	}
	host, port := ServiceHost(r.of, service.Name), int(service.Port.Number)
	if service.Port.Name != "" {
		named, found := o.Port(host, service.Port.Name)
		if !found {
			return nil
		}
		port = named
	}
	out := &networking.HTTPRoute{Route: []*networking.HTTPRouteDestination{{
		Destination: &networking.Destination{Host: host, Port: &networking.PortSelector{Number: uint32(port)}}, Weight: 100,
	}}}
	if r.uri != nil {
		out.Match = []*networking.HTTPMatchRequest{{Uri: r.uri}}
	}
	return out
}
