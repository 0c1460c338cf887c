package registration

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"istio.io/api/annotation"
	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// The annotations of a registered WorkloadEntry: its group, the server that has the proxy's
// stream, and when the stream began, all as in Istio; and the proxy's node id.
var (
	GroupAnnotation     = annotation.IoIstioAutoRegistrationGroup.Name
	ServerAnnotation    = annotation.IoIstioWorkloadController.Name
	ConnectedAnnotation = annotation.IoIstioConnectedAt.Name
)

// NodeAnnotation of a registered WorkloadEntry has the id of the proxy's node.
const NodeAnnotation = "portolan.io/registered-node"

// NodeLabelsAnnotation of a WorkloadGroup lists, with commas, the keys of the labels that each
// node chooses for its entry; "*" stands for all. A node cannot choose other labels: by a label
// a workload becomes an endpoint of any service that selects it.
const NodeLabelsAnnotation = "portolan.io/node-labels"

// maxName is the length of the longest name of an object.
const maxName = 253

// NameOf returns the name of the entry of a proxy in a group: GROUP-IP, or GROUP-IP-NETWORK,
// with dashes for the colons of the IP, of which it keeps the last 253 characters. (Istio:
// autoregistration.autoregisteredWorkloadEntryName.)
func NameOf(p *discovery.Proxy) string {
	name := p.Group + "-" + strings.ReplaceAll(addressOf(p), ":", "-")
	if p.Network != "" {
		name += "-" + p.Network
	}
	name = name[max(0, len(name)-maxName):]
	return strings.TrimLeft(name, "-.")
}

func addressOf(p *discovery.Proxy) string { return p.IPAddresses[0] }

// keyOf returns the key of the entry of a proxy.
func keyOf(p *discovery.Proxy) config.Key {
	return config.Key{Kind: schema.WorkloadEntry, Namespace: p.Namespace, Name: NameOf(p)}
}

// groupOf returns the key of the group that a proxy names.
func groupOf(p *discovery.Proxy) config.Key {
	return config.Key{Kind: schema.WorkloadGroup, Namespace: p.Namespace, Name: p.Group}
}

// accountOf returns the service account of the workloads of a group.
func accountOf(group *networking.WorkloadGroup) string {
	return cmp.Or(group.GetTemplate().GetServiceAccount(), schema.DefaultServiceAccount)
}

// permit returns why a proxy may not be registered in a group, nil if it may. unproved says the
// same of proxies that have proved no identity.
func permit(p *discovery.Proxy, group *config.Config, unproved func() error) error {
	account := accountOf(group.Spec.(*networking.WorkloadGroup))
	if ip, err := netip.ParseAddr(addressOf(p)); err == nil && !p.Local && (ip.IsLoopback() || ip.IsUnspecified()) {
		return fmt.Errorf("the address %s leads nobody to its machine: have the node id, or INSTANCE_IPS of its metadata, name an address of the machine", addressOf(p))
	}
	proved, err := proves(p, account, unproved)
	if err == nil && !proved {
		err = fmt.Errorf("its identity is %s, and the group is for the service account %s of %s: get a certificate of that account, or change spec.template.serviceAccount of the group",
			p.Identity, account, group.Namespace)
	}
	return err
}

// proves says whether a proxy has proved a service account of its namespace. If it has proved no
// identity, unproved decides for proxies of the server's own machine; an error says what it lacks.
func proves(p *discovery.Proxy, account string, unproved func() error) (bool, error) {
	if p.Identity == "" {
		if !p.Local || p.Doubted {
			return false, fmt.Errorf("it has proved no identity: have it connect with a certificate of %s/%s (portolan bootstrap --tls)", p.Namespace, account)
		}
		err := unproved()
		return err == nil, err
	}
	who, err := identity.Parse(p.Identity)
	return err == nil && who.Namespace == p.Namespace && who.ServiceAccount == account, err
}

// EntryOf returns the WorkloadEntry of a proxy in a group, without a registration's annotations,
// and the keys of the labels that the node may not choose, in order. A label of the spec's
// template gives way to one of the group's metadata, and that to a node's that is allowed. The
// label for mutual TLS says whether the proxy has a certificate of the mesh, unless the group
// has it. If the group has a probe, the entry gets traffic only while it is reported healthy.
func EntryOf(group *config.Config, p *discovery.Proxy) (entry *config.Config, refused []string) {
	from := group.Spec.(*networking.WorkloadGroup)
	spec := &networking.WorkloadEntry{}
	if from.GetTemplate() != nil {
		spec = proto.CloneOf(from.GetTemplate())
	}
	all := labels.Instance{labels.TLSMode: labels.TLSModeDisabled}
	if p.HasCertificate() {
		all[labels.TLSMode] = labels.TLSModeIstio
	}
	maps.Copy(all, spec.GetLabels())
	maps.Copy(all, from.GetMetadata().GetLabels())
	allowed := strings.Split(strings.ReplaceAll(group.Annotations[NodeLabelsAnnotation], " ", ""), ",")
	for _, key := range slices.Sorted(maps.Keys(p.MetadataLabels)) {
		switch value := p.MetadataLabels[key]; {
		case value == all[key], key == localityLabel:
		case slices.Contains(allowed, key), slices.Contains(allowed, "*"):
			all[key] = value
		default:
			refused = append(refused, key)
		}
	}
	spec.Address, spec.Labels, spec.ServiceAccount = addressOf(p), maps.Clone(all), accountOf(from)
	spec.Locality = cmp.Or(p.Locality, spec.Locality)
	spec.Network = cmp.Or(p.Network, spec.Network)
	annotations := maps.Clone(from.GetMetadata().GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[GroupAnnotation] = group.Name
	if _, set := annotations[health.ChecksAnnotation]; from.Probe != nil && !set {
		annotations[health.ChecksAnnotation] = "true"
	}
	key, controller := keyOf(p), true
	return &config.Config{
		Meta: config.Meta{
			GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name, Labels: all, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: group.APIVersion(), Kind: group.Kind, Name: group.Name, UID: types.UID(group.UID), Controller: &controller,
			}},
		},
		Spec: spec,
	}, refused
}

// localityLabel of a node is no label of its entry, as in Istio: the locality is a field.
const localityLabel = "istio-locality"
