// Package resource holds what generators make and streams send: a named Envoy resource
// as its bytes, with their hash as its version, and what a client needs besides it
// ([Need]).
package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// Resource is one built resource. It is never modified.
type Resource struct {
	Name string
	// Body is the message as it goes over the wire. Shared and read-only.
	Body *anypb.Any
	// Version is the hash of the bytes: equal content, equal version, on every
	// replica and after every restart.
	Version string
	// Needs are the resources without which a client cannot use this one, in an order
	// that follows from the content.
	Needs []Need
	// Parts are the resources whose bytes this one carries; their needs are its needs.
	Parts []*Resource
}

// EachNeed iterates over the needs of the resource and of its parts.
func (r *Resource) EachNeed(yield func(Need) bool) {
	for _, n := range r.Needs {
		if !yield(n) {
			return
		}
	}
	for _, part := range r.Parts {
		for _, n := range part.Needs {
			if !yield(n) {
				return
			}
		}
	}
}

// EachRef iterates over the clusters that the resource or one of its parts
// sends traffic to. A name may come more than once.
func (r *Resource) EachRef(yield func(cluster string) bool) {
	for n := range r.EachNeed {
		if n.Kind == Traffic && !yield(n.Name) {
			return
		}
	}
}

// Refers says whether the resource itself, its parts apart, sends traffic to a cluster.
func (r *Resource) Refers(cluster string) bool {
	return slices.ContainsFunc(r.Needs, func(n Need) bool { return n.Kind == Traffic && n.Name == cluster })
}

// Resolves says whether a client that has taken the resource still resolves host names
// before it can use it.
func (r *Resource) Resolves() bool {
	return slices.ContainsFunc(r.Needs, func(n Need) bool { return n.Kind == Grace })
}

// Encoded is a message whose Body its generator has put together from parts that were
// encoded before. Message lacks these parts.
type Encoded struct {
	proto.Message
	Body []byte
}

// Decode returns the message with all its parts.
func (e Encoded) Decode() (proto.Message, error) {
	whole := e.Message.ProtoReflect().New().Interface()
	return whole, proto.Unmarshal(e.Body, whole)
}

// New marshals a message, deterministically. A message that breaks a rule of the API is
// an error, since no client would accept it.
func New(name string, m proto.Message, needs ...Need) (*Resource, error) {
	encoded, isEncoded := m.(Encoded)
	if isEncoded {
		m = encoded.Message
	}
	if err := message.Check(m); err != nil {
		return nil, fmt.Errorf("%s breaks the rules of its API: %w", name, err)
	}
	value := encoded.Body
	if !isEncoded {
		var err error
		if value, err = (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil {
			return nil, fmt.Errorf("marshal %s: %w", name, err)
		}
	}
	return &Resource{Name: name, Body: &anypb.Any{TypeUrl: typeOf(m), Value: value}, Version: hash(value), Needs: needs}, nil
}

// typeOf returns the type URL of a message. The messages of one served type share one
// string.
func typeOf(message proto.Message) string {
	const prefix = "type.googleapis.com/"
	name := string(message.ProtoReflect().Descriptor().FullName())
	for _, served := range [...]string{ClusterType, EndpointType, ListenerType, RouteType, VirtualHostType, ConfigType} {
		if served[len(prefix):] == name {
			return served
		}
	}
	return prefix + name
}

// With returns r with other bytes, made from its own bytes and those of parts. Its version
// covers the versions of r and of parts.
func (r *Resource) With(body []byte, parts []*Resource) *Resource {
	out := *r
	out.Body, out.Parts = &anypb.Any{TypeUrl: r.Body.GetTypeUrl(), Value: body}, parts
	if len(parts) == 0 {
		out.Version = hash(body)
	} else {
		out.Version = SetVersion(append([]*Resource{r}, parts...))
	}
	return &out
}

// apart is the prefix of the version of a resource whose parts are sent separately.
const apart = "apart-"

// Apart is With for a resource whose parts the client gets one by one and puts together
// itself. IsApart recognises its version.
func (r *Resource) Apart(body []byte) *Resource {
	out := r.With(body, nil)
	out.Version = apart + out.Version
	return out
}

// IsApart says whether a version belongs to a resource whose parts are sent separately.
func IsApart(version string) bool { return strings.HasPrefix(version, apart) }

// Under returns r with a version that also covers the version of its parent. If the
// parent changes, a client then lacks the child.
func (r *Resource) Under(parentVersion string) *Resource {
	out := *r
	out.Version = hash([]byte(r.Version + "/" + parentVersion))
	return &out
}

// hash returns the first 128 bits of SHA-256 in hex.
func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// SetVersion returns one version for several resources, in their order: a hash over
// their names and versions.
func SetVersion(resources []*Resource) string {
	h := sha256.New()
	var line []byte
	for _, r := range resources {
		line = append(append(append(append(line[:0], r.Name...), 0), r.Version...), 0)
		h.Write(line)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
