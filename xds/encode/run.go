package encode

import (
	"iter"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/xds/resource"
)

const (
	// longestRun and largestRun end a run, in resources and in bytes, where the
	// resources do not: a change costs at most that much.
	longestRun = 256
	largestRun = 128 << 10
	// apart is the size from which the content of a resource is a buffer of its
	// own: the bytes that the resource has, not a copy of them.
	apart = 16 << 10
	// around is about what a resource takes beside its name and content.
	around = 160
)

// run is some resources as repeated fields of a response.
type run struct {
	resources []*resource.Resource
	size      int       // about
	used      time.Time // guarded by the cache

	once    sync.Once
	buffers mem.BufferSlice
}

// cut divides a list where the resources themselves determine: lists that have
// most in common have most of their runs in common, wherever they differ.
func cut(resources []*resource.Resource) iter.Seq[[]*resource.Resource] {
	return func(yield func([]*resource.Resource) bool) {
		begin, size := 0, 0
		for i, r := range resources {
			size += len(r.Body.GetValue())
			if !ends(r) && i-begin+1 < longestRun && size < largestRun {
				continue
			}
			if !yield(resources[begin : i+1]) {
				return
			}
			begin, size = i+1, 0
		}
		if begin < len(resources) {
			yield(resources[begin:])
		}
	}
}

// ends says whether a resource is the last of its run: one in 64 is.
func ends(r *resource.Resource) bool {
	n := len(r.Version)
	return n >= 2 && r.Version[n-1] == '0' && strings.IndexByte("0123", r.Version[n-2]) >= 0
}

func sizeOf(resources []*resource.Resource) int {
	size := 0
	for _, r := range resources {
		size += len(r.Body.GetValue()) + len(r.Name) + around
	}
	return size
}

// build encodes the resources.
func (r *run) build(delta bool) {
	own := r.size
	for _, res := range r.resources {
		if n := len(res.Body.GetValue()); n >= apart {
			own -= n
		}
	}
	w := writer{b: make([]byte, 0, own)}
	for _, res := range r.resources {
		if delta {
			w.resource(res)
		} else {
			w.any(responseResources, res)
		}
	}
	w.flush()
	r.buffers = w.out
}

// writer puts buffers together.
type writer struct {
	out mem.BufferSlice
	b   []byte
}

// flush ends the buffer under way.
func (w *writer) flush() {
	if len(w.b) > 0 {
		w.out = append(w.out, mem.SliceBuffer(w.b[:len(w.b):len(w.b)]))
	}
	w.b = nil
}

// resource writes a resource of delta as a field of its response. Its content is
// the last of it.
func (w *writer) resource(r *resource.Resource) {
	size := sizeString(resourceName, r.Name) + sizeString(resourceVersion, r.Version) +
		protowire.SizeTag(resourceResource) + protowire.SizeBytes(sizeAny(r))
	w.tag(responseResources, size)
	w.string(resourceName, r.Name)
	w.string(resourceVersion, r.Version)
	w.any(resourceResource, r)
}

// any writes the body of a resource as a field.
func (w *writer) any(field protowire.Number, r *resource.Resource) {
	w.tag(field, sizeAny(r))
	w.string(anyTypeURL, r.Body.GetTypeUrl())
	value := r.Body.GetValue()
	if len(value) == 0 {
		return
	}
	w.tag(anyValue, len(value))
	if len(value) < apart {
		w.b = append(w.b, value...)
		return
	}
	w.flush()
	w.out = append(w.out, mem.SliceBuffer(value))
}

func (w *writer) tag(field protowire.Number, size int) {
	w.b = protowire.AppendTag(w.b, field, protowire.BytesType)
	w.b = protowire.AppendVarint(w.b, uint64(size))
}

// string writes a field, unless it is empty, as proto3 has it.
func (w *writer) string(field protowire.Number, s string) {
	if s != "" {
		w.content(field, s)
	}
}

// content writes a field, also an empty one.
func (w *writer) content(field protowire.Number, s string) {
	w.tag(field, len(s))
	w.b = append(w.b, s...)
}

func sizeAny(r *resource.Resource) int {
	size := sizeString(anyTypeURL, r.Body.GetTypeUrl())
	if n := len(r.Body.GetValue()); n > 0 {
		size += protowire.SizeTag(anyValue) + protowire.SizeBytes(n)
	}
	return size
}

func sizeString(field protowire.Number, s string) int {
	if s == "" {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeBytes(len(s))
}

// The fields of the messages, by their numbers.
const (
	anyTypeURL protowire.Number = 1
	anyValue   protowire.Number = 2

	resourceVersion  protowire.Number = 1
	resourceResource protowire.Number = 2
	resourceName     protowire.Number = 3

	// of both variants
	responseVersion   protowire.Number = 1
	responseResources protowire.Number = 2
	responseTypeURL   protowire.Number = 4
	responseNonce     protowire.Number = 5

	worldControlPlane protowire.Number = 6
	deltaRemoved      protowire.Number = 6
	deltaControlPlane protowire.Number = 7

	controlPlaneIdentifier protowire.Number = 1
)
