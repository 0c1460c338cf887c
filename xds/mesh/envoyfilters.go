package mesh

import (
	"iter"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/policy"
)

// envoyFilter is an EnvoyFilter, parsed once. It is never modified.
type envoyFilter struct {
	*policy.Policy // which proxies it is for
	*patch.Filter
	path string
	// picky are the indexes of the patches that are for some versions or metadata of proxies.
	picky []int
	// shared: a resource that workloads share may depend on it.
	shared bool
}

func newEnvoyFilter(path string, c *config.Config) *envoyFilter {
	spec := c.Spec.(*networking.EnvoyFilter)
	f := &envoyFilter{
		Policy: policy.NewPolicy(c), path: path,
		Filter: patch.Parse(c.Namespace, c.Name, c.CreationTimestamp, spec),
	}
	for _, p := range f.Patches {
		if match := spec.GetConfigPatches()[p.Index].GetMatch().GetProxy(); match.GetProxyVersion() != "" || len(match.GetMetadata()) > 0 {
			f.picky = append(f.picky, p.Index)
		}
		f.shared = f.shared || isShared(p)
	}
	return f
}

// isShared says whether resources that workloads share may depend on a patch: it is not only for
// what comes into a workload, or it adds a cluster or a listener, which all of a class have.
func isShared(p *patch.Patch) bool {
	switch p.ApplyTo {
	case networking.EnvoyFilter_EXTENSION_CONFIG, networking.EnvoyFilter_BOOTSTRAP:
		return false
	}
	return p.Context != networking.EnvoyFilter_SIDECAR_INBOUND || p.Adds()
}

// envoyFilters holds the EnvoyFilters by config path.
type envoyFilters struct{ tableOf[*envoyFilter] }

var envoyFilterRows = envoyFilters{tableOf[*envoyFilter]{envoyFilterObjects}}

func (t envoyFilters) follow(from, to *PushContext) {
	eachObject(from, to, envoyFilterPath, func(c pmap.Change[*config.Config]) {
		var f *envoyFilter
		if c.HasNew {
			f = newEnvoyFilter(c.Key, c.New)
		}
		t.put(to, c.Key, f, c.HasNew)
	})
}

// EnvoyFilters iterates over the EnvoyFilters, by path, with those of their patches that take effect on
// resources: a patch of BOOTSTRAP does on the file that a proxy starts with.
func (p *PushContext) EnvoyFilters() iter.Seq2[*config.Config, []*patch.Patch] {
	return func(yield func(*config.Config, []*patch.Patch) bool) {
		for f := range envoyFilterRows.rowsOf(p).Values() {
			patches := slices.DeleteFunc(slices.Clone(f.Patches), func(one *patch.Patch) bool {
				return one.ApplyTo == networking.EnvoyFilter_BOOTSTRAP
			})
			if !yield(f.Config, patches) {
				return
			}
		}
	}
}

// followPatches follows the EnvoyFilters that a class may have and others of its namespace not.
func (t attachmentTable) followPatches(from, to *PushContext) {
	for c := range envoyFilterRows.diff(from, to) {
		if f := c.New; f != nil && f.shared && (f.Narrow() || len(f.picky) > 0) {
			t.add(to, attachmentKey(class.Patch, f.Config.Namespace), c.Key, &attachment{object: f.Config})
		} else if c.HasOld {
			t.remove(to, attachmentKey(class.Patch, c.Old.Config.Namespace), c.Key)
		}
	}
}

// patchesFor returns the names of the EnvoyFilters that attach to a proxy and not to all of its
// namespace, and of those of their patches that are for it alone.
func (p *PushContext) patchesFor(who attachedTo) []string {
	if who.Type == discovery.Proxyless {
		return nil
	}
	var out []string
	w := policyWorkload(who.Proxy, who.workload, who.attached)
	for _, namespace := range patchNamespaces(p.mesh.GetRootNamespace(), who.Namespace) {
		for path := range p.attachmentsIn(class.Patch, namespace).Keys() {
			f := envoyFilterRows.rowsOf(p).Value(path)
			if !f.Selects(w, p.mesh.GetRootNamespace()) {
				continue
			}
			if f.Narrow() {
				out = append(out, path)
			}
			for _, i := range f.picky {
				if one := f.Patches[i]; isShared(one) && one.ForProxy(who.Version, who.Metadata) {
					out = append(out, class.PatchName(path, i))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// patchNamespaces returns the namespaces whose EnvoyFilters may be for a proxy of a namespace: the
// root namespace, then its own.
func patchNamespaces(root, own string) []string {
	if own == root {
		return []string{root}
	}
	return []string{root, own}
}

// has says whether a patch is for what a view builds: the class, or one workload.
func (v *View) has(f *envoyFilter, one *patch.Patch) bool {
	picky := slices.Contains(f.picky, one.Index)
	switch {
	case !f.Narrow() && !picky:
		return true
	case v.workload != nil:
		return (!picky || one.ForProxy(v.workload.Version, v.workload.Metadata)) &&
			f.Selects(policyWorkload(v.workload.Proxy, v.workload.place(), v.class.Attached), v.RootNamespace())
	}
	return (!f.Narrow() || v.class.Attached.Has(class.Patch, f.path)) &&
		(!picky || v.class.Attached.Has(class.Patch, class.PatchName(f.path, one.Index)))
}

// BootstrapPatches returns the patches of BOOTSTRAP that are for a proxy, in the order in which they
// apply (patch.Bootstrap). The proxy need not have connected yet.
func (p *PushContext) BootstrapPatches(proxy *discovery.Proxy) []*patch.Patch {
	at := patch.Place{Kind: networking.EnvoyFilter_BOOTSTRAP}
	return NewView(p, p.ClassOf(proxy)).Of(proxy).Patches(at.Kind, at)
}
