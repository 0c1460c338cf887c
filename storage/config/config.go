package config

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
)

// GroupVersionKind names a kind of object. The version is that of the API a
// client speaks; stores and caches hold every object under the one canonical
// version of its schema, so that keys of one object are always equal.
type GroupVersionKind struct {
	Group, Version, Kind string
}

// APIVersion is the Kubernetes apiVersion, "group/version".
func (g GroupVersionKind) APIVersion() string { return g.Group + "/" + g.Version }

// String is "group/version/kind".
func (g GroupVersionKind) String() string { return g.Group + "/" + g.Version + "/" + g.Kind }

// Key names one object of a store (ConfigKey in Istio's terms). It is
// comparable. As a dependency of generated configuration, the key of a service
// is the kind ServiceEntry with the host name as Name.
type Key struct {
	Kind            GroupVersionKind
	Namespace, Name string
}

// Path is "<group>/<kind>/<namespace>/<name>": the key of an object in a
// snapshot and the tail of its key in etcd. It leaves out the version, since
// all versions of a kind are one object. Paths bring the objects of a kind, and
// those of a namespace of it, together; their order is that of the bytes, in
// which "a-b/" comes before "a/". Objects without a namespace have "_" in its
// place.
func (k Key) Path() string { return KindPath(k.Kind) + scope(k.Namespace) + "/" + k.Name }

// String is "kind/namespace/name" as users write it: "virtualservice/shop/reviews".
func (k Key) String() string {
	kind := strings.ToLower(k.Kind.Kind)
	if k.Namespace == "" {
		return kind + "/" + k.Name
	}
	return kind + "/" + k.Namespace + "/" + k.Name
}

// KindPath is the prefix of the Paths of all objects of a kind.
func KindPath(kind GroupVersionKind) string { return kind.Group + "/" + kind.Kind + "/" }

// NamespacePath is the prefix of the Paths of all objects of a kind in a
// namespace.
func NamespacePath(kind GroupVersionKind, namespace string) string {
	return KindPath(kind) + scope(namespace) + "/"
}

func scope(namespace string) string {
	if namespace == "" {
		return "_"
	}
	return namespace
}

// Meta is what every object has beside its spec.
type Meta struct {
	GroupVersionKind
	Name, Namespace string

	// Domain is the DNS suffix under which short host names of the spec are
	// completed: host.namespace.svc.domain. A store sets it; it is not kept
	// with the object.
	Domain string

	// Labels and Annotations are those of the user.
	Labels, Annotations map[string]string

	// ResourceVersion identifies the last mutation of the object. It is opaque:
	// only equality has a meaning.
	ResourceVersion string

	// CreationTimestamp is set once by the store, in whole seconds, UTC.
	CreationTimestamp time.Time

	// Generation counts the changes of the spec, from 1. UID tells incarnations
	// of one name apart. Both are set by the store.
	Generation int64
	UID        string
}

// Key returns the key of the object.
func (m *Meta) Key() Key {
	return Key{Kind: m.GroupVersionKind, Namespace: m.Namespace, Name: m.Name}
}

// Config is one object: what a user wrote and what the store adds. A Config
// handed out by a store or a cache, its maps and its spec included, is shared
// and must not be modified; use Clone.
type Config struct {
	Meta
	Spec proto.Message
	// Status is what is known of the object, nil for nothing. No store keeps it
	// with the object: it is put together where an object is shown.
	Status proto.Message
}

// Clone returns a deep copy that the caller may modify.
func (c *Config) Clone() *Config {
	out := *c
	out.Labels = cloneMap(c.Labels)
	out.Annotations = cloneMap(c.Annotations)
	if c.Spec != nil {
		out.Spec = proto.Clone(c.Spec)
	}
	if c.Status != nil {
		out.Status = proto.Clone(c.Status)
	}
	return &out
}

func cloneMap(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// SameContent says whether two objects say the same: spec, labels and
// annotations are equal. Storing one over the other would change nothing.
func SameContent(a, b *Config) bool {
	return SameLabels(a, b) && proto.Equal(a.Spec, b.Spec)
}

// SameLabels says whether the labels and annotations of two objects are equal.
func SameLabels(a, b *Config) bool {
	return sameMap(a.Labels, b.Labels) && sameMap(a.Annotations, b.Annotations)
}

func sameMap(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// Compare orders objects as Istio resolves conflicts, "oldest wins": by
// creation time in whole seconds, then name, then namespace. It is the one
// order that any output may depend on.
func Compare(a, b *Config) int {
	if c := a.CreationTimestamp.Truncate(time.Second).Compare(b.CreationTimestamp.Truncate(time.Second)); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Namespace, b.Namespace)
}
