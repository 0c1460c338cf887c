// Package origins finds the objects that a resource was built from, by the queries of its
// generator.
package origins

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/mesh/plugin"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
	"github.com/portolan-mesh/portolan/xds/mesh/telemetry"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// Of returns the objects behind recorded answers, from which a resource was built: each
// once, in the order of their paths.
func Of(reads []mesh.Dependency) []config.Key {
	var out []config.Key
	Each(reads, func(key config.Key) {
		if key.Kind != schema.WorkloadEntry {
			out = append(out, key)
		}
	})
	slices.SortFunc(out, func(a, b config.Key) int { return strings.Compare(a.Path(), b.Path()) })
	return slices.Compact(out)
}

// Each calls do with the objects behind recorded answers, WorkloadEntries included, in no
// order and some several times. It allocates nothing.
func Each(reads []mesh.Dependency, do func(config.Key)) {
	for _, r := range reads {
		switch a := r.Answer.(type) {
		case *mesh.ServiceRow:
			eachService(a, do)
		case *mesh.EndpointRow:
			eachWorkload(a.All(), do)
		case mesh.InstancesAt:
			for _, row := range a.All() {
				eachWorkload(row.Endpoints, do)
			}
		case mesh.WorkloadsAt:
			for _, w := range a.All() {
				if w.Name != "" {
					do(config.Key{Kind: schema.WorkloadEntry, Namespace: w.Namespace, Name: w.Name})
				}
			}
		case mesh.ProbesAt:
			for _, row := range a.All() {
				do(row.Object)
			}
		case *routing.Listener:
			if a != nil {
				for _, g := range a.Gateways {
					do(g.Key())
				}
			}
		case *routing.Routes:
			if a != nil {
				for _, s := range a.Servers {
					do(s.Gateway.Key())
				}
			}
		case mesh.SelectedPolicies:
			a.Each(do)
		case *mesh.SecretRow:
			if a != nil {
				do(a.Key())
			}
		case *telemetry.Logging:
			eachTelemetry(a, do)
		case *telemetry.Tracing:
			eachTelemetry(a, do)
		case *telemetry.Metrics:
			eachTelemetry(a, do)
		case *plugin.Content:
			if a != nil {
				do(a.Key)
			}
		case plugin.Standing:
			if a != (plugin.Standing{}) {
				do(config.Key{Kind: schema.WasmPlugin, Namespace: a.Namespace, Name: a.Name})
			}
		case *meshconfig.Config:
			if a.Object != (config.Key{}) {
				do(a.Object)
			}
		case *sidecar.Sidecar:
			if a != nil {
				do(a.Config.Key())
			}
		case *routing.VirtualService:
			if a != nil {
				eachRoute(a, do)
			}
		case routing.List:
			a.Each(func(vs *routing.VirtualService) { eachOf(vs, do) })
		case routing.Visible:
			a.Each(func(vs *routing.VirtualService) { eachRoute(vs, do) })
		case *destination.Rule:
			if a != nil {
				for _, c := range a.Configs {
					do(c.Key())
				}
			}
		}
	}
}

// eachTelemetry calls do with the Telemetry of a section, which may be nil.
func eachTelemetry[E proto.Message](part *telemetry.Part[E], do func(config.Key)) {
	if part != nil {
		do(part.Object)
	}
}

// eachOf calls do with a VirtualService, or the Ingresses that it is derived from.
func eachOf(vs *routing.VirtualService, do func(config.Key)) {
	if vs.Derived == nil {
		do(vs.Config.Key())
		return
	}
	for _, key := range vs.Derived.From {
		do(key)
	}
}

// eachRoute calls do as eachOf does, and with the delegates of the VirtualService.
func eachRoute(vs *routing.VirtualService, do func(config.Key)) {
	eachOf(vs, do)
	for _, d := range vs.Delegates {
		do(d.Config.Key())
	}
}

// eachService calls do with the ServiceEntries of the services, and with the
// WorkloadEntries that the services resolve by DNS. Services of other registries have no
// object.
func eachService(r *mesh.ServiceRow, do func(config.Key)) {
	if r == nil {
		return
	}
	for _, s := range r.Services {
		if a := s.Attributes; a.Provider == discovery.External {
			do(config.Key{Kind: schema.ServiceEntry, Namespace: a.Namespace, Name: a.Name})
		}
	}
	eachWorkload(r.DNSEndpoints, do)
}

// eachWorkload calls do with the WorkloadEntries of the endpoints. An endpoint that a
// ServiceEntry lists inline is named after that ServiceEntry.
func eachWorkload(endpoints []*discovery.Endpoint, do func(config.Key)) {
	for _, e := range endpoints {
		if e.WorkloadName != "" {
			do(config.Key{Kind: schema.WorkloadEntry, Namespace: e.Namespace, Name: e.WorkloadName})
		}
	}
}
