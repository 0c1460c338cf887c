package mesh

import (
	"cmp"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// ProxyConfig returns the configuration by which the resources of the proxy are made, as a mesh
// configuration that has at most defaultConfig: what the proxy states itself, over that of the mesh.
func (v *View) ProxyConfig() *meshconfig.Config {
	mesh, stated := v.Mesh(DefaultProxyConfig), v.ask(Self, selfSettings, "").(discovery.ProxySettings)
	if last := v.settled.Load(); last != nil && last.mesh == mesh && last.stated == stated {
		return last.out
	}
	out := mesh.Over(stated)
	v.settled.Store(&settled{mesh, stated, out})
	return out
}

// settled is what the mesh and a proxy say of its configuration, and what they make together.
type settled struct {
	mesh   *meshconfig.Config
	stated discovery.ProxySettings
	out    *meshconfig.Config
}

// IsGateway says whether the proxy is a gateway.
func (v *View) IsGateway() bool { return v.class.Shape.Type == discovery.Router }

// ConfigsAt are the ProxyConfigs of a namespace, or the WorkloadGroup of a name if it is annotated
// with one, by path.
type ConfigsAt = pmap.Map[*config.Config]

// proxyConfigs holds the ProxyConfigs by namespace, and the annotated WorkloadGroups by name.
type proxyConfigs struct{ groups[*config.Config] }

var proxyConfigRows = proxyConfigs{groupsOf[*config.Config](ProxyConfigs)}

// The keys of the table.
func namespaceConfigKey(namespace string) string { return "namespace/" + namespace }

func groupConfigKey(namespace, name string) string { return "group/" + namespace + "/" + name }

func (t proxyConfigs) follow(from, to *PushContext) {
	eachObject(from, to, proxyConfigPath, func(c pmap.Change[*config.Config]) {
		key := namespaceConfigKey(cmp.Or(c.New, c.Old).Namespace)
		if c.HasNew {
			t.add(to, key, c.Key, c.New)
		} else {
			t.remove(to, key, c.Key)
		}
	})
	eachObject(from, to, workloadGroupPath, func(c pmap.Change[*config.Config]) {
		before, after := annotated(c.Old), annotated(c.New)
		object := cmp.Or(c.New, c.Old)
		key := groupConfigKey(object.Namespace, object.Name)
		switch {
		case before == after:
		case after == "":
			t.remove(to, key, c.Key)
		default:
			t.add(to, key, c.Key, c.New)
		}
	})
}

// annotated returns the ProxyConfig with which a WorkloadGroup is annotated, empty for none.
func annotated(group *config.Config) string {
	if group == nil {
		return ""
	}
	return group.Spec.(*networking.WorkloadGroup).GetMetadata().GetAnnotations()[schema.ProxyConfigAnnotation]
}

// ProxyConfigAt returns what the agent of a machine needs of the ProxyConfigs for a workload, nil if
// nothing is set. Of headers, connections and the topology it has only what the annotation says, as the
// server lays this over the rest when the proxy states it. (Istio: EffectiveProxyConfig.)
func (p *PushContext) ProxyConfigAt(namespace, group string, workload labels.Instance) *meshv1alpha1.ProxyConfig {
	return (&View{push: p}).proxyConfigAt(namespace, group, workload)
}

func (v *View) proxyConfigAt(namespace, group string, workload labels.Instance) *meshv1alpha1.ProxyConfig {
	out := &meshv1alpha1.ProxyConfig{}
	if mesh := v.Mesh(DefaultProxyConfig).GetDefaultConfig(); mesh != nil {
		proto.Merge(out, mesh)
		connections := out.GetConnectionSettings().GetGlobalDownstreamConnectionLimit()
		out.ProxyHeaders, out.GatewayTopology, out.ConnectionSettings = nil, nil, nil
		if connections != nil {
			out.ConnectionSettings = &meshv1alpha1.ProxyConfig_ConnectionSettings{GlobalDownstreamConnectionLimit: connections}
		}
	}
	root := v.RootNamespace()
	meshconfig.MergeProxyConfig(out, specOf(v.oldest(root, func(selector labels.Instance) bool { return len(selector) == 0 })))
	if namespace != root {
		meshconfig.MergeProxyConfig(out, specOf(v.oldest(namespace, func(selector labels.Instance) bool { return len(selector) == 0 })))
	}
	if group != "" {
		for _, object := range v.ask(ProxyConfigs, groupConfigKey(namespace, group), "").(ConfigsAt).All() {
			own, _ := schema.ProxyConfigOf(object.Spec.(*networking.WorkloadGroup).GetMetadata().GetAnnotations()) // validated
			meshconfig.MergeProxyConfig(out, own)
		}
	}
	meshconfig.MergeProxyConfig(out, specOf(v.oldest(namespace, func(selector labels.Instance) bool {
		return len(selector) > 0 && selector.SubsetOf(workload)
	})))
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}

// oldest returns the oldest ProxyConfig of a namespace whose selector meets a condition, nil for none.
func (v *View) oldest(namespace string, meets func(selector labels.Instance) bool) *config.Config {
	var out *config.Config
	for _, object := range v.ask(ProxyConfigs, namespaceConfigKey(namespace), "").(ConfigsAt).All() {
		selector := labels.Instance(object.Spec.(*networkingv1beta1.ProxyConfig).GetSelector().GetMatchLabels())
		if meets(selector) && (out == nil || config.Compare(object, out) < 0) {
			out = object
		}
	}
	return out
}

// specOf returns what a ProxyConfig sets, as the mesh configuration says it.
func specOf(object *config.Config) *meshv1alpha1.ProxyConfig {
	if object == nil {
		return nil
	}
	spec := object.Spec.(*networkingv1beta1.ProxyConfig)
	return &meshv1alpha1.ProxyConfig{Concurrency: spec.GetConcurrency(), ProxyMetadata: spec.GetEnvironmentVariables()}
}

// OwnProxyConfig is ProxyConfigAt for the workload whose resources are built, nil in the view of a
// class.
func (v *View) OwnProxyConfig() *meshv1alpha1.ProxyConfig {
	key := v.ask(Self, selfGroup, "").(groupOf)
	if !key.known {
		return nil
	}
	for _, ip := range v.IPs() {
		v.ask(Instances, service.AddressKey(ip), "") // the labels follow from these
	}
	v.InNamespace(v.class.Namespace) // recorded, since it decides which objects count
	return v.proxyConfigAt(v.class.Namespace, key.name, labels.Parse(v.ask(Self, selfOwnLabels, "").(string)))
}

// groupOf is the WorkloadGroup that a workload names, if it is known.
type groupOf struct {
	known bool
	name  string
}

func (v *View) group() groupOf {
	if v.workload == nil {
		return groupOf{}
	}
	return groupOf{true, v.workload.Group}
}
