package config

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupVersionKind names a kind of object. Version is an API version as a client speaks
// it. Stores and caches hold every object under the canonical version of its schema, so
// that keys of one object are equal.
type GroupVersionKind struct {
	Group, Version, Kind string
}

// APIVersion is the Kubernetes apiVersion: "group/version", or the version alone
// for the core group, whose name is empty.
func (g GroupVersionKind) APIVersion() string {
	if g.Group == "" {
		return g.Version
	}
	return g.Group + "/" + g.Version
}

// String is "group/version/kind", or "version/kind" for the core group.
func (g GroupVersionKind) String() string { return g.APIVersion() + "/" + g.Kind }

// Key names one object of a store (ConfigKey in Istio's terms). It is
// comparable. As a dependency of generated configuration, the key of a service
// is the kind ServiceEntry with the host name as Name.
type Key struct {
	Kind            GroupVersionKind
	Namespace, Name string
}

// Path is "<group>/<kind>/<namespace>/<name>": the key of an object in a snapshot, and
// the tail of its key in etcd. It leaves out the version, since all versions of a kind
// are one object. In the order of paths the objects of a kind stand together, and
// within it the objects of a namespace. The order compares bytes: "a-b/" comes before
// "a/". The core group is "core" in a Path, and "_" stands for no namespace.
func (k Key) Path() string { return KindPath(k.Kind) + scope(k.Namespace) + "/" + k.Name }

// String is "kind/namespace/name" as users write it: "virtualservice/shop/reviews".
func (k Key) String() string {
	kind := strings.ToLower(k.Kind.Kind)
	if k.Namespace == "" {
		return kind + "/" + k.Name
	}
	return kind + "/" + k.Namespace + "/" + k.Name
}

// Names returns the keys as users write them.
func Names(keys []Key) []string {
	var out []string
	for _, key := range keys {
		out = append(out, key.String())
	}
	return out
}

// KindPath is the prefix of the Paths of all objects of a kind.
func KindPath(kind GroupVersionKind) string {
	if kind.Group == "" {
		return coreGroup + "/" + kind.Kind + "/"
	}
	return kind.Group + "/" + kind.Kind + "/"
}

// coreGroup stands for the group without a name in a Path.
const coreGroup = "core"

// GroupOfPath returns the group that the first part of a Path stands for.
func GroupOfPath(part string) string {
	if part == coreGroup {
		return ""
	}
	return part
}

// KeyOfPath is the inverse of Key.Path. It returns false for a text of another form.
func KeyOfPath(path string) (Key, bool) {
	parts := strings.Split(path, "/")
	if len(parts) != 4 {
		return Key{}, false
	}
	key := Key{Kind: GroupVersionKind{Group: GroupOfPath(parts[0]), Kind: parts[1]}, Namespace: parts[2], Name: parts[3]}
	if key.Namespace == scope("") {
		key.Namespace = ""
	}
	return key, true
}

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

// Meta is the metadata that objects of every kind have.
type Meta struct {
	GroupVersionKind
	Name, Namespace string

	// Domain is the DNS suffix under which short host names of the spec are completed:
	// host.namespace.svc.domain. The store sets it; it is not part of the stored value.
	Domain string

	// Labels and Annotations are set by the user.
	Labels, Annotations map[string]string

	// OwnerReferences are the objects that this one belongs to, as the user names them. The
	// store keeps and returns them; nothing is deleted because of them.
	OwnerReferences []metav1.OwnerReference

	// ManagedFields say who set which fields, as in Kubernetes. Only objects that somebody
	// has applied server-side have any. A mutation that has none leaves those of the stored
	// object as they are (storage.Op.Managed).
	ManagedFields []metav1.ManagedFieldsEntry

	// GenerateName is the prefix of the name that the API generates for a new object
	// without a Name. It is not stored.
	GenerateName string

	// ResourceVersion identifies the last mutation of the object. It is opaque:
	// only equality has a meaning.
	ResourceVersion string

	// Source names the read-only source that the object comes from; it is empty for an
	// object of the store. It exists in memory only: it is not stored, and clients do not
	// see it.
	Source string

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

// SourceAnnotation is the annotation in which the config API names the source of an object,
// if that is not the store, and the object's place there. It is never stored.
const SourceAnnotation = "portolan.io/source"

// WarningsAnnotation is the annotation in which the config API gives the warnings of a read to the
// bookmarks of a watch: a JSON list of texts.
const WarningsAnnotation = "portolan.io/warnings"

// Revision returns the revision of the store at which the object was last written. It
// is false for an object of another source, and of a store without revisions.
func (m *Meta) Revision() (int64, bool) {
	if m.Source != "" {
		return 0, false
	}
	revision, err := strconv.ParseInt(m.ResourceVersion, 10, 64)
	return revision, err == nil
}

// Config is one object: the content that a user wrote, and the metadata that the store
// adds. Stores and caches hand out shared Configs, with shared maps and specs: never
// modify them, use Clone.
type Config struct {
	Meta
	// Spec is made by the Codec of the kind: a protobuf message, or a pointer to a Go
	// struct with JSON tags. A store that keeps objects encoded may have the *anypb.Any
	// of the stored value here.
	Spec any
	// Written is how the user wrote the spec; use AsWritten and SetWritten.
	Written Written
	// Status is the servers' report on the object; nil for none. No store keeps it with
	// the object: the config API adds it to its answers.
	Status proto.Message
}

// Clone returns a deep copy that the caller may modify.
func (c *Config) Clone() *Config {
	out := *c
	out.Labels = cloneMap(c.Labels)
	out.Annotations = cloneMap(c.Annotations)
	out.OwnerReferences = slices.Clone(c.OwnerReferences)
	out.ManagedFields = slices.Clone(c.ManagedFields)
	if c.Spec != nil {
		out.Spec = formOf(c.Spec).clone(c.Spec)
		out.SetWritten(c.AsWritten())
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

// SameContent says whether two objects say the same: spec, as written, labels, annotations
// and owner references are equal. Storing one over the other would change
// nothing.
func SameContent(a, b *Config) bool {
	return SameMeta(a, b) && a.AsWritten() == b.AsWritten() && SameSpec(a.Spec, b.Spec)
}

// SameMeta says whether the labels, annotations and owner references of two
// objects are equal.
func SameMeta(a, b *Config) bool {
	return sameMap(a.Labels, b.Labels) && sameMap(a.Annotations, b.Annotations) &&
		slices.EqualFunc(a.OwnerReferences, b.OwnerReferences, sameOwner)
}

// SameManagedFields says whether the same managers have the same fields, whenever they set them.
func SameManagedFields(a, b []metav1.ManagedFieldsEntry) bool {
	return slices.EqualFunc(a, b, func(a, b metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Operation == b.Operation && a.APIVersion == b.APIVersion && a.Subresource == b.Subresource &&
			a.FieldsType == b.FieldsType && sameFields(a.FieldsV1, b.FieldsV1)
	})
}

func sameFields(a, b *metav1.FieldsV1) bool {
	return a == b || a != nil && b != nil && bytes.Equal(a.GetRawBytes(), b.GetRawBytes())
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		sameTruth(a.Controller, b.Controller) && sameTruth(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

func sameTruth(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }

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

// Compare orders objects as Istio resolves conflicts, "oldest wins": by creation time
// in whole seconds, then name, then namespace. Any output that depends on an order of
// objects must use it.
func Compare(a, b *Config) int {
	if c := a.CreationTimestamp.Truncate(time.Second).Compare(b.CreationTimestamp.Truncate(time.Second)); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Namespace, b.Namespace)
}
