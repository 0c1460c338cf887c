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
	// longestRun and largestRun bound a run, in resources and in bytes, that no resource
	// ends: a change costs at most that much.
	longestRun = 256
	largestRun = 128 << 10
	// apart is the size in bytes from which the content of a resource is a buffer of its
	// own. The resource and the buffer share the bytes.
	apart = 16 << 10
	// around estimates the bytes of an encoded resource besides its name and content.
	around = 160
)

// run is a part of a list of resources, encoded as repeated fields of a response.
type run struct {
	resources []*resource.Resource
	size      int       // estimate, in bytes
	used      time.Time // guarded by the cache

	once    sync.Once
	buffers mem.BufferSlice
}

// cut divides a list into runs, at places that the resources themselves determine. So
// lists that have most in common have most of their runs in common, wherever they differ.
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

// ends says whether a resource is the last of its run, by its version: about one in 64
// is.
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

// build encodes the resources of the run, for delta or state of the world.
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

// writer encodes fields into a list of buffers.
type writer struct {
	out mem.BufferSlice
	b   []byte
}

// flush adds the bytes so far as a buffer.
func (w *writer) flush() {
	if len(w.b) > 0 {
		w.out = append(w.out, mem.SliceBuffer(w.b[:len(w.b):len(w.b)]))
	}
	w.b = nil
}

// resource writes a resource of delta as a field of its response. The content of the
// resource comes last.
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

// string writes a field, unless it is empty, as proto3 requires.
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

	// in both variants
	responseVersion   protowire.Number = 1
	responseResources protowire.Number = 2
	responseTypeURL   protowire.Number = 4
	responseNonce     protowire.Number = 5

	worldControlPlane protowire.Number = 6
	deltaRemoved      protowire.Number = 6
	deltaControlPlane protowire.Number = 7

	controlPlaneIdentifier protowire.Number = 1
)
