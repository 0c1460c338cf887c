package mcp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// maxSkew is how far the clock of a peer may be ahead: an object created further in the
// future would be the youngest for ever.
const maxSkew = 5 * time.Minute

// decoder makes objects from resources. The result depends neither on other resources
// nor on the past.
type decoder struct {
	domain string
	now    func() time.Time
}

// received is a decoded resource.
type received struct {
	// name is "namespace/name"; empty if unknown.
	name string
	// version is the version of the resource in the protocol.
	version string
	// object is nil if the resource has a fault.
	object *config.Config
	fault  string
	// warning says what part of the object has no effect.
	warning string
	// undecodable says that the encoding is at fault, so that the response is refused.
	undecodable bool
	// twice says that the response has another resource of that name.
	twice bool
}

// key returns the key of the object, as far as known.
func (r *received) key(kind *schema.Schema) config.Key {
	key := config.Key{Kind: kind.GroupVersionKind, Name: r.name}
	if namespace, name, ok := strings.Cut(r.name, "/"); ok {
		key.Namespace, key.Name = namespace, name
	}
	return key
}

// name and version are those of the protocol, empty if it has none.
func (d *decoder) decode(kind *schema.Schema, name, version string, resource *anypb.Any) *received {
	r := &received{name: name, version: version}
	m := &mcpv1.Resource{}
	if err := unpack(kind, resource, m); err != nil {
		r.fault, r.undecodable = fmt.Sprintf("is no %s: %s", m.ProtoReflect().Descriptor().FullName(), plain(err)), true
		return r
	}
	says := m.GetMetadata().GetName()
	if r.name == "" {
		r.name = says
	}
	if r.version == "" {
		r.version = m.GetMetadata().GetVersion()
	}
	object, fault := d.meta(kind, says, m.GetMetadata())
	switch {
	case fault != "":
		r.fault, r.undecodable = fault, true
		if says == r.name {
			r.name = name
		}
		return r
	case says != r.name:
		r.fault = fmt.Sprintf("its metadata have the name %q", says)
		return r
	case m.GetMetadata().GetCreateTime() != nil && m.GetMetadata().GetCreateTime().CheckValid() != nil:
		r.fault = "its time of creation is none: " + plain(m.GetMetadata().GetCreateTime().CheckValid())
		return r
	}
	if r.fault, r.undecodable = body(kind, object, m.GetBody()); r.fault != "" {
		return r
	}
	if faults := d.check(kind, object); len(faults) > 0 {
		r.fault = strings.Join(faults, "; ")
		return r
	}
	if err := stamp(object, m.GetMetadata().GetVersion()); err != nil {
		r.fault = plain(err)
		return r
	}
	if !kind.Codec.Known(m.GetBody()) {
		r.warning = "has fields that this server does not know: they have no effect"
	}
	r.object = object
	return r
}

// Servers that use a library give the message the type URL that was requested.
func unpack(kind *schema.Schema, resource *anypb.Any, m *mcpv1.Resource) error {
	if resource.GetTypeUrl() == kind.GroupVersionKind.String() {
		return proto.Unmarshal(resource.GetValue(), m)
	}
	return resource.UnmarshalTo(m)
}

// meta makes an object without a spec.
func (d *decoder) meta(kind *schema.Schema, name string, m *mcpv1.Metadata) (object *config.Config, fault string) {
	namespace, own, ok := strings.Cut(name, "/")
	if !ok || own == "" || strings.Contains(own, "/") || kind.ClusterScoped != (namespace == "") {
		return nil, fmt.Sprintf("its metadata have the name %q, where namespace/name belongs", name)
	}
	object = &config.Config{Meta: config.Meta{
		GroupVersionKind: kind.GroupVersionKind, Namespace: namespace, Name: own, Domain: d.domain,
		Labels: m.GetLabels(), Annotations: m.GetAnnotations(), CreationTimestamp: time.Unix(0, 0).UTC(),
	}}
	delete(object.Annotations, config.SourceAnnotation)
	if at := m.GetCreateTime(); at != nil {
		object.CreationTimestamp = at.AsTime().Truncate(time.Second)
	}
	return object, ""
}

// typeURLPrefix begins the type URLs of messages.
const typeURLPrefix = "type.googleapis.com/"

// body decodes the spec of an object. All versions of an Istio kind have the same
// encoding.
func body(kind *schema.Schema, object *config.Config, body *anypb.Any) (fault string, undecodable bool) {
	want := config.SpecType(kind.Codec.New())
	got := body.GetTypeUrl()
	if body == nil {
		return "has no body", true
	}
	if got != want && !slices.ContainsFunc(kind.Versions, func(version string) bool { return got == inVersion(want, version) }) {
		return fmt.Sprintf("its body is a %s, where a %s belongs", strings.TrimPrefix(got, typeURLPrefix), strings.TrimPrefix(want, typeURLPrefix)), false
	}
	spec, err := kind.Codec.Unmarshal(&anypb.Any{TypeUrl: want, Value: body.GetValue()})
	if err != nil {
		return "its body cannot be decoded: " + plain(err), true
	}
	object.Spec = spec
	return "", false
}

// inVersion returns the type of a spec in another version:
// "…/istio.networking.v1.Gateway" for "…/istio.networking.v1alpha3.Gateway".
func inVersion(typeURL, version string) string {
	parts := strings.Split(typeURL, ".")
	if len(parts) < 3 {
		return typeURL
	}
	parts[len(parts)-2] = version
	return strings.Join(parts, ".")
}

func (d *decoder) check(kind *schema.Schema, object *config.Config) (faults []string) {
	if err := kind.Codec.Check(object.Spec); err != nil {
		return []string{plain(err)}
	}
	_, err := kind.Validate(object)
	for _, err := range config.Faults(err) {
		faults = append(faults, plain(err))
	}
	if len(faults) > 0 {
		return faults
	}
	if object.CreationTimestamp.After(d.now().Add(maxSkew)) {
		faults = append(faults, "metadata.creationTimestamp: is in the future: set the clock of the peer")
	}
	return faults
}

// uids is the UUID name space of the uids of peers' objects.
var uids = uuid.MustParse("6ab1f6a2-5c3e-4a2b-9c0e-7f8f6f6f5b1d")

// maxVersion bounds how many bytes of a peer's version the version of an object
// includes.
const maxVersion = 64

// stamp sets the other metadata that a store sets. All of them follow from the object
// and its version at the peer, so they are the same everywhere. The version includes a
// hash of the content: it differs even if a peer gives one version to two contents, as a
// restored one does. It is not a number, so nobody takes it for a revision of the store.
func stamp(object *config.Config, version string) error {
	object.Generation = 1
	object.UID = uuid.NewSHA1(uids, []byte(object.Meta.Key().Path())).String()
	text, err := config.ToJSON(object, "")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if len(version) > maxVersion || strings.ContainsFunc(version, func(r rune) bool { return r <= ' ' || r > '~' }) {
		version = ""
	}
	object.ResourceVersion = cmp.Or(version, "x") + "-" + hex.EncodeToString(sum[:8])
	return nil
}

// plain returns an error without the variable blanks of protobuf's error texts.
func plain(err error) string { return strings.ReplaceAll(err.Error(), "\u00a0", " ") }
