// Package resource is what generators make and streams send: a named Envoy
// resource as its bytes, with the hash of these as its version.
package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Resource is one built resource. It is never modified.
type Resource struct {
	Name string
	// Body is the message as it goes over the wire. Shared and read-only.
	Body *anypb.Any
	// Version is the hash of the bytes: equal content, equal version, on every
	// replica and after every restart.
	Version string
	// Children names the resources of the next type that this one makes a proxy
	// wait for: the endpoints of a cluster, the routes of a listener. When the
	// resource is sent its children are sent again.
	Children []string
	// Resolves says that a proxy which has taken the resource needs a moment more:
	// it is a cluster whose host names the proxy resolves.
	Resolves bool
	// Refs names, in order, the clusters that the resource sends traffic to.
	Refs []string
	// Parts are the resources whose bytes this one carries; their Refs are its.
	Parts []*Resource
}

// EachRef iterates over the clusters that the resource or one of its parts
// sends traffic to. A name may come more than once.
func (r *Resource) EachRef(yield func(cluster string) bool) {
	for _, ref := range r.Refs {
		if !yield(ref) {
			return
		}
	}
	for _, part := range r.Parts {
		for _, ref := range part.Refs {
			if !yield(ref) {
				return
			}
		}
	}
}

// New marshals a message, deterministically.
func New(name string, message proto.Message, children ...string) (*Resource, error) {
	body := &anypb.Any{}
	if err := anypb.MarshalFrom(body, message, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("marshal %s: %w", name, err)
	}
	return &Resource{Name: name, Body: body, Version: hash(body.Value), Children: children}, nil
}

// With returns r with other bytes, which were put together from its own and from
// those of parts: versions of these tell what the bytes are.
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

// apart begins the versions of resources whose parts come apart from them.
const apart = "apart-"

// Apart is With for a resource that a client puts together itself, with parts that
// it gets one by one. Its version says so.
func (r *Resource) Apart(body []byte) *Resource {
	out := r.With(body, nil)
	out.Version = apart + out.Version
	return out
}

// IsApart says whether a version is that of a resource whose parts come apart.
func IsApart(version string) bool { return strings.HasPrefix(version, apart) }

// Under returns r with a version that also covers the version of its parent: a
// change of the parent then makes the child one that a client lacks.
func (r *Resource) Under(parentVersion string) *Resource {
	out := *r
	out.Version = hash([]byte(r.Version + "/" + parentVersion))
	return &out
}

// hash is the first 128 bits of SHA-256 in hex.
func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// SetVersion is the version of several resources as one, in their order: a hash
// over their names and versions.
func SetVersion(resources []*Resource) string {
	h := sha256.New()
	var line []byte
	for _, r := range resources {
		line = append(append(append(append(line[:0], r.Name...), 0), r.Version...), 0)
		h.Write(line)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
