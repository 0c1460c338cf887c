package schema

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/side"
)

// The canonical kinds of the Side schemas.
var (
	ConfigMap = config.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	Event     = config.GroupVersionKind{Version: "v1", Kind: "Event"}
	Lease     = config.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	Namespace = config.GroupVersionKind{Version: "v1", Kind: "Namespace"}
)

const (
	// maxOfKind bounds the objects of each side kind, and maxConfigMap the bytes of one
	// ConfigMap.
	maxOfKind    = 1000
	maxConfigMap = 64 << 10
	// KeptEvents is how many events are kept, the newest. There may be twice as many for a
	// moment.
	KeptEvents = maxOfKind
)

// istioConfigMap is the ConfigMap in which Istio has the mesh configuration; that of a revision has its
// name behind a dash.
const istioConfigMap = "istio"

// Side returns the kinds of Kubernetes' own that controllers and kubectl need beside the kinds of
// Pilot. They do not concern the mesh.
func Side() Set { return NewSet(configMap(), event(), namespace(), lease()) }

// All returns the kinds of Pilot and of Side.
func All() Set { return Pilot().With(Side()) }

func configMap() *Schema {
	s := definition[*side.ConfigMap]{
		kind: ConfigMap, plural: "configmaps", shortName: "cm",
		codec:  config.JSON[side.ConfigMap](),
		served: serve("immutable", "data", "binaryData"),
		check:  checkConfigMap,
	}.schema()
	return s.aside(maxOfKind)
}

func checkConfigMap(c checker, s *side.ConfigMap) {
	if size := s.Size(); size > maxConfigMap {
		c.at("data").fail("has %d bytes with what is in binaryData, and may have %d: this server keeps small ConfigMaps only", size, maxConfigMap)
	}
	if name := c.report.object.Name; s.Data["mesh"] != "" && (name == istioConfigMap || strings.HasPrefix(name, istioConfigMap+"-")) {
		c.at("data").key("mesh").fail("is the mesh configuration of Istio, which is an object of its own here: write it below spec: of a document with " +
			"apiVersion: portolan.io/v1, kind: MeshConfig and metadata: {name: default, namespace: istio-system}, and apply that (see docs/tasks/mesh-defaults.md)")
	}
	for _, name := range sortedKeys(s.Data) {
		at := c.at("data").key(name)
		at.syntax(name, validation.IsConfigMapKey)
		if _, twice := s.BinaryData[name]; twice {
			at.fail("is in binaryData, too: leave one of them out")
		}
	}
	for _, name := range sortedKeys(s.BinaryData) {
		c.at("binaryData").key(name).syntax(name, validation.IsConfigMapKey)
	}
}

func event() *Schema {
	s := definition[*side.Event]{
		kind: Event, plural: "events", shortName: "ev",
		codec: config.JSON[side.Event](),
		served: serve("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime",
			"series", "action", "related", "reportingComponent", "reportingInstance"),
		check: checkEvent,
	}.schema()
	s.Versions = append(s.Versions, side.EventsVersion)
	s.Spellings = map[string]config.Codec{side.EventsVersion: config.JSONSpelled((*side.EventV1).Event)}
	return s.aside(2 * KeptEvents)
}

// maxMessage bounds the message of an event, as in Kubernetes.
const maxMessage = 1 << 10

func checkEvent(c checker, s *side.Event) {
	object := c.report.object
	if about := s.InvolvedObject.Namespace; about != "" && about != object.Namespace {
		c.at("involvedObject", "namespace").fail("is %q, and the event is in %q: an event is where its object is", about, object.Namespace)
	}
	if n := len(s.Message); n > maxMessage {
		c.at("message").fail("has %d bytes, and may have %d", n, maxMessage)
	}
	c.at("type").oneOf(s.Type, "", corev1.EventTypeNormal, corev1.EventTypeWarning)
}

func namespace() *Schema {
	s := definition[*corev1.NamespaceSpec]{
		kind: Namespace, plural: "namespaces", shortName: "ns",
		codec: config.JSON[corev1.NamespaceSpec](),
		check: func(c checker, _ *corev1.NamespaceSpec) {
			if name := c.report.object.Name; name != "" {
				c.report.at("metadata").at("name").syntax(name, validation.IsDNS1123Label)
			}
		},
	}.schema()
	s.ClusterScoped = true
	return s.aside(maxOfKind)
}

func lease() *Schema {
	s := definition[*coordinationv1.LeaseSpec]{
		kind: Lease, plural: "leases",
		codec:  config.JSON[coordinationv1.LeaseSpec](),
		served: serve("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions", "strategy", "preferredHolder"),
		check:  checkLease,
	}.schema()
	return s.aside(maxOfKind)
}

func checkLease(c checker, s *coordinationv1.LeaseSpec) {
	if seconds := s.LeaseDurationSeconds; seconds != nil && *seconds <= 0 {
		c.at("leaseDurationSeconds").fail("is %d: a lease lasts at least a second", *seconds)
	}
	if n := s.LeaseTransitions; n != nil && *n < 0 {
		c.at("leaseTransitions").fail("must not be negative, is %d", *n)
	}
}

// aside makes a kind one of Side, with a bound.
func (s *Schema) aside(most int) *Schema {
	s.Internal, s.Most = true, most
	return s
}
