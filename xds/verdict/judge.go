package verdict

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// judges has the function that judges the objects of a kind, by the kind.
var judges = map[string]func(*judge, *config.Config){
	schema.VirtualService.Kind:  (*judge).virtualService,
	schema.DestinationRule.Kind: (*judge).destinationRule,
	schema.Gateway.Kind:         (*judge).gateway,
	schema.Sidecar.Kind:         (*judge).sidecar,
	schema.ServiceEntry.Kind:    (*judge).serviceEntry,
	schema.WorkloadEntry.Kind:   (*judge).workloadEntry,
	schema.Secret.Kind:          (*judge).secret,
	schema.TokenIssuer.Kind:     (*judge).tokenIssuer,
	schema.RoleBinding.Kind:     (*judge).roleBinding,
	schema.Role.Kind:            (*judge).role,
	schema.User.Kind:            (*judge).user,
}

// judge judges one object. It records the rows that it reads, absent ones too.
type judge struct {
	index *Index
	rows  map[row]struct{}
	views map[mesh.Class]*mesh.View
	found []Verdict
}

// judgeObject returns the verdicts of an object, and the rows that they depend on, in
// order; nothing for nil. alone are the verdicts of its schema.
func judgeObject(x *Index, object *config.Config, alone []Verdict) ([]row, []Verdict) {
	if object == nil {
		return nil, nil
	}
	j := &judge{index: x, rows: map[row]struct{}{}, views: map[mesh.Class]*mesh.View{}, found: slices.Clone(alone)}
	if f := judges[object.Kind]; f != nil {
		f(j, object)
	}
	j.shadowing(object)
	j.advised(object)
	j.unbuilt(object)
	for _, v := range j.views {
		for _, d := range v.Dependencies() {
			j.rows[rowOf(d.Query.Row)] = struct{}{}
		}
	}
	slices.SortFunc(j.found, compare)
	return slices.Sorted(maps.Keys(j.rows)), slices.Compact(j.found)
}

func (j *judge) add(v Verdict) { j.found = append(j.found, v) }

func (j *judge) read(table row, key string) { j.rows[table+row(key)] = struct{}{} }

func (j *judge) mesh() *mesh.PushContext { return j.index.facts.Mesh }

// view is the mesh as the proxies of a namespace see it that no Sidecar restricts.
func (j *judge) view(namespace string) *mesh.View { return j.viewOf(mesh.Class{Namespace: namespace}) }

// viewOf is the mesh as proxies of a class see it.
func (j *judge) viewOf(class mesh.Class) *mesh.View {
	v := j.views[class]
	if v == nil {
		v = mesh.NewView(j.mesh(), class).Recording()
		j.views[class] = v
	}
	return v
}

// object is the object of a key, nil where there is none.
func (j *judge) object(key config.Key) *config.Config {
	path := key.Path()
	j.read(objectRow, path)
	return j.index.facts.configs().Value(path)
}

// objects iterates over the objects of a kind in a namespace.
func (j *judge) objects(kind config.GroupVersionKind, namespace string) iter.Seq[*config.Config] {
	j.read(objectsRow, config.NamespacePath(kind, namespace))
	return j.mesh().Inputs().Configs.List(kind, namespace)
}

// services iterates over the services of the hosts that a name or a pattern covers.
func (j *judge) services(pattern host.Name) iter.Seq[*mesh.ServiceRow] {
	j.read(hostsRow, string(pattern))
	return func(yield func(*mesh.ServiceRow) bool) {
		for row := range j.mesh().HostsMatching(pattern) {
			for _, s := range row.Services {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// serviceOf is the service of a host as proxies of a namespace see it, nil for none.
func (j *judge) serviceOf(h host.Name, namespace string) *mesh.ServiceRow {
	return j.view(namespace).Service(h)
}

// endpoints are those of a service.
func (j *judge) endpoints(s *mesh.ServiceRow) []*discovery.Endpoint {
	if s.Service().Resolution.IsDNS() {
		return s.DNSEndpoints
	}
	return j.view(s.Namespace).Endpoints(s).All()
}

// known are the proxies of a row.
func (j *judge) known(table row, key string) pmap.Map[*status.Proxy] {
	j.read(table, key)
	return j.index.proxies.Value(string(table) + key)
}

// selects says whether labels select a known proxy.
func (j *judge) selects(selector map[string]string, some pmap.Map[*status.Proxy]) bool {
	for p := range some.Values() {
		proxy := proxyOf(p)
		for _, address := range proxy.IPAddresses {
			j.rows[rowOf(mesh.InstancesKey(address))] = struct{}{}
		}
		if j.mesh().Selects(selector, proxy) {
			return true
		}
	}
	return false
}

// at is the path of an element of a list.
func at(path string, index int) string { return fmt.Sprintf("%s[%d]", path, index) }
