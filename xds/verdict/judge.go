package verdict

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/cache/kube/ingress"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// Judge gives the functions that judge one object access to the facts, and collects their
// verdicts. It records the rows that they read, absent ones too.
type Judge struct {
	of    *Lookup
	rows  map[Row]struct{}
	views map[mesh.Class]*mesh.View
	found []Verdict
	// served are the addresses at which gateways serve the object.
	served []string
}

// NewJudge returns a Judge of an object that already has the verdicts found.
func NewJudge(of *Lookup, found []Verdict) *Judge {
	return &Judge{of: of, rows: map[Row]struct{}{}, views: map[mesh.Class]*mesh.View{}, found: slices.Clone(found)}
}

// Outcome returns, in order, the rows that the verdicts depend on, and the verdicts.
func (j *Judge) Outcome() ([]Row, []Verdict) {
	for _, v := range j.views {
		for _, d := range v.Dependencies() {
			j.ReadMesh(d.Query.Row)
		}
	}
	slices.SortFunc(j.found, compare)
	return slices.Sorted(maps.Keys(j.rows)), slices.Compact(j.found)
}

// ServedAt says at which addresses and host names gateways serve the object, an Ingress.
func (j *Judge) ServedAt(addresses []string) { j.served = addresses }

// Addresses returns what ServedAt was told, sorted, each once.
func (j *Judge) Addresses() []string {
	slices.Sort(j.served)
	return slices.Compact(j.served)
}

// Facts returns the facts that the object is judged by. Reading them records no row.
func (j *Judge) Facts() Facts { return j.of.Facts }

// Add adds a verdict on the object.
func (j *Judge) Add(v Verdict) { j.found = append(j.found, v) }

// Read records that the judgement depends on a row of a table.
func (j *Judge) Read(table Row, key string) { j.rows[table+Row(key)] = struct{}{} }

// ReadMesh records that the judgement depends on a row of package mesh.
func (j *Judge) ReadMesh(key mesh.RowKey) { j.rows[rowOf(key)] = struct{}{} }

// Mesh returns the mesh of the facts. Reading it records no row.
func (j *Judge) Mesh() *mesh.PushContext { return j.of.Mesh }

// View returns the mesh as proxies of a namespace see it if no Sidecar restricts them.
func (j *Judge) View(namespace string) *mesh.View { return j.ViewOf(mesh.Class{Namespace: namespace}) }

// ViewOf returns the mesh as proxies of a class see it.
func (j *Judge) ViewOf(c mesh.Class) *mesh.View {
	v := j.views[c]
	if v == nil {
		v = mesh.NewView(j.Mesh(), c).Recording()
		j.views[c] = v
	}
	return v
}

// SeenBy returns the mesh as a known proxy sees it, by its namespace, its Sidecar and its shape.
// Proxies that are alike in these get the same view.
func (j *Judge) SeenBy(proxy *discovery.Proxy) *mesh.View {
	for _, address := range proxy.IPAddresses {
		j.ReadMesh(mesh.InstancesKey(address))
	}
	for _, namespace := range []string{proxy.Namespace, j.Mesh().MeshConfig().GetRootNamespace()} {
		j.Read(ObjectsRow, config.NamespacePath(schema.Sidecar, namespace))
	}
	of := j.Mesh().ClassOf(proxy)
	return j.ViewOf(mesh.Class{Namespace: of.Namespace, Attached: of.Attached.Of(class.Sidecar), Shape: of.Shape})
}

// Object returns the object of a key, nil if there is none.
func (j *Judge) Object(key config.Key) *config.Config {
	path := key.Path()
	j.Read(ObjectRow, path)
	return j.of.Configs().Value(path)
}

// Gateway returns a Gateway of the mesh, also one that is derived from an Ingress; nil if there is
// none.
func (j *Judge) Gateway(key config.Key) *routing.Gateway {
	j.Object(key)
	if of, ok := ingress.OfGateway(key, j.Mesh().MeshConfig().GetRootNamespace()); ok {
		if object := j.Object(of); object != nil {
			j.ReadClass(object)
		}
	}
	return j.Mesh().Gateway(key.Path())
}

// ReadClass records that the verdicts depend on the class of an Ingress.
func (j *Judge) ReadClass(of *config.Config) {
	if class := ingress.ClassOf(of); class != "" {
		j.Object(config.Key{Kind: schema.IngressClass, Name: class})
	}
}

// HealthOf returns what is reported of the health of a WorkloadEntry, nil for nothing.
func (j *Judge) HealthOf(object *config.Config) *health.Report {
	if r := j.report(object); r != nil && !r.Unknown {
		return r
	}
	return nil
}

// OddHealthOf returns what a source says of the health of a WorkloadEntry if that cannot be read; "" for
// nothing.
func (j *Judge) OddHealthOf(object *config.Config) string {
	if r := j.report(object); r != nil {
		return r.Odd
	}
	return ""
}

// report returns the report on a WorkloadEntry, nil for none.
func (j *Judge) report(object *config.Config) *health.Report {
	path := health.Path(object.Namespace, object.Name)
	j.Read(HealthRow, path)
	r := j.Mesh().Inputs().Configs.Health().Value(path)
	if r == nil || r.UID != "" && r.UID != object.UID {
		return nil
	}
	return r
}

// Objects iterates over the objects of a kind in a namespace.
func (j *Judge) Objects(kind config.GroupVersionKind, namespace string) iter.Seq[*config.Config] {
	j.Read(ObjectsRow, config.NamespacePath(kind, namespace))
	return j.Mesh().Inputs().Configs.List(kind, namespace)
}

// Services iterates over the services of all hosts that a name or a pattern covers.
func (j *Judge) Services(pattern host.Name) iter.Seq[*mesh.ServiceRow] {
	j.Read(HostsRow, string(pattern))
	return func(yield func(*mesh.ServiceRow) bool) {
		for row := range j.Mesh().HostsMatching(pattern) {
			for _, s := range row.Services {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// ServiceOf returns the service of a host as proxies of a namespace see it, nil for none.
func (j *Judge) ServiceOf(h host.Name, namespace string) *mesh.ServiceRow {
	return j.View(namespace).Service(h)
}

// AliasOf returns the host that a host is an alias of to proxies of a namespace, itself if that leads back to
// it; false for no alias.
func (j *Judge) AliasOf(h host.Name, namespace string) (host.Name, bool) {
	alias, ok := j.View(namespace).Alias(h)
	return cmp.Or(alias.Of, h), ok
}

// HostAliased tells that an object is for the host of an alias, which field names.
func (j *Judge) HostAliased(field, written string, h, of host.Name) {
	v := Verdict{
		Code: HostAlias, Field: field, Message: fmt.Sprintf("%s is an alias of %s: this has no effect for it", Named(written, h), of),
		Remedy: "name " + string(of) + " instead",
	}
	if of == h {
		v.Message, v.Remedy = Named(written, h)+" is an alias of itself, and so of no service: this has no effect for it", "mend externalName of its Service"
	}
	j.Add(v)
}

// Endpoints returns the endpoints of a service.
func (j *Judge) Endpoints(s *mesh.ServiceRow) []*discovery.Endpoint {
	return j.View(s.Namespace).EndpointsOf(s)
}

// Known returns the proxies of a row, by node.
func (j *Judge) Known(table Row, key string) pmap.Map[*status.Proxy] {
	j.Read(table, key)
	return j.of.proxies.Value(string(table) + key)
}

// Selects reports whether a selector selects one of some known proxies.
func (j *Judge) Selects(selector map[string]string, some pmap.Map[*status.Proxy]) bool {
	for p := range some.Values() {
		proxy := ProxyOf(p)
		for _, address := range proxy.IPAddresses {
			j.ReadMesh(mesh.InstancesKey(address))
		}
		if j.Mesh().Selects(selector, proxy) {
			return true
		}
	}
	return false
}

// At returns the path of an element of the list at path.
func At(path string, index int) string { return fmt.Sprintf("%s[%d]", path, index) }
