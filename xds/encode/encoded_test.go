package encode_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/encode"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func newCache() *encode.Cache { return encode.New("portolan") }

func res(tb testing.TB, name, content string) *resource.Resource {
	tb.Helper()
	r, err := resource.New(name, wrapperspb.String(content))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// numbered makes resources of some hundred bytes each.
func numbered(tb testing.TB, n int) []*resource.Resource {
	tb.Helper()
	out := make([]*resource.Resource, n)
	for i := range out {
		name := fmt.Sprintf("outbound|80||service-%05d.default.mesh.internal", i)
		out[i] = res(tb, name, name+strings.Repeat("x", 400))
	}
	return out
}

var controlPlane = &corev3.ControlPlane{Identifier: "portolan"}

// plainWorld and plainDelta make the responses as messages of protocol buffers.
func plainWorld(h encode.Header, resources []*resource.Resource) *discoveryv3.DiscoveryResponse {
	out := &discoveryv3.DiscoveryResponse{
		TypeUrl: h.TypeURL, Nonce: h.Nonce, VersionInfo: h.Version, ControlPlane: controlPlane,
	}
	for _, r := range resources {
		out.Resources = append(out.Resources, r.Body)
	}
	return out
}

func plainDelta(h encode.Header, resources []*resource.Resource, removed []string) *discoveryv3.DeltaDiscoveryResponse {
	out := &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: h.TypeURL, Nonce: h.Nonce, SystemVersionInfo: h.Version, ControlPlane: controlPlane, RemovedResources: removed,
	}
	for _, r := range resources {
		out.Resources = append(out.Resources, &discoveryv3.Resource{Name: r.Name, Version: r.Version, Resource: r.Body})
	}
	return out
}

// TestBytesAreThoseOfThePlainMessage: the bytes sent decode to the response that protocol
// buffers would send.
func TestBytesAreThoseOfThePlainMessage(t *testing.T) {
	t.Parallel()
	header := encode.Header{TypeURL: "type.googleapis.com/cluster", Nonce: "17-3", Version: "17"}
	for what, resources := range map[string][]*resource.Resource{
		"none":    nil,
		"one":     numbered(t, 1),
		"many":    numbered(t, 500),
		"large":   {res(t, "a", "small"), res(t, "b", strings.Repeat("large", 100_000)), res(t, "c", "small")},
		"empty":   {{Name: "", Version: "", Body: &anypb.Any{}}, {Name: "no body", Version: "1"}},
		"unnamed": {res(t, "", "")},
	} {
		for _, removed := range [][]string{nil, {"x", "", "y"}} {
			t.Run(fmt.Sprint(what, len(removed)), func(t *testing.T) {
				t.Parallel()
				c := newCache()
				for range 2 { // built, and found
					checkDecodes(t, c.World(header, resources), plainWorld(header, resources))
					checkDecodes(t, c.Delta(header, resources, removed), plainDelta(header, resources, removed))
					checkDecodes(t, c.Delta(encode.Header{}, resources, removed), plainDelta(encode.Header{}, resources, removed))
				}
			})
		}
	}
}

func checkDecodes(t *testing.T, m *encode.Message, plain proto.Message) {
	t.Helper()
	bytes, err := encode.Codec().Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := plain.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(bytes.Materialize(), got); err != nil {
		t.Fatal(err)
	}
	// A resource without a body is sent with an empty one.
	if d := cmp.Diff(plain, got, protocmp.Transform(), protocmp.IgnoreEmptyMessages()); d != "" {
		t.Fatalf("-want +got:\n%s", d)
	}
	if m.Size() != m.Buffers().Len() {
		t.Errorf("size %d of %d bytes", m.Size(), m.Buffers().Len())
	}
}

// TestOtherMessagesPassTheCodec in both directions.
func TestOtherMessagesPassTheCodec(t *testing.T) {
	t.Parallel()
	want := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type", ResourceNamesSubscribe: []string{"a"}}
	bytes, err := encode.Codec().Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := &discoveryv3.DeltaDiscoveryRequest{}
	if err := encode.Codec().Unmarshal(bytes, got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// ownBytes returns how many bytes of a message are not in the buffers of others.
func ownBytes(m *encode.Message, others ...*encode.Message) int {
	shared := map[*byte]bool{}
	for _, o := range others {
		for _, b := range o.Buffers() {
			shared[&b.ReadOnlyData()[0]] = true
		}
	}
	size := 0
	for _, b := range m.Buffers() {
		if !shared[&b.ReadOnlyData()[0]] {
			size += b.Len()
		}
	}
	return size
}

// TestEqualResponsesShareTheirBytes, except for the fields of one stream.
func TestEqualResponsesShareTheirBytes(t *testing.T) {
	t.Parallel()
	const n = 2000
	c := newCache()
	resources := numbered(t, n)
	first := c.Delta(encode.Header{Nonce: "1-1"}, resources, nil)
	built := c.Stats().Built
	for what, again := range map[string][]*resource.Resource{
		"the same resources":         slices.Clone(resources),
		"others of the same content": numbered(t, n),
	} {
		second := c.Delta(encode.Header{Nonce: "1-2"}, again, nil)
		if size := ownBytes(second, first); size > 100 {
			t.Errorf("%s: %d of %d bytes are its own", what, size, second.Size())
		}
	}
	if b := c.Stats().Built; b != built {
		t.Errorf("%d runs were built again", b-built)
	}
	if c.World(encode.Header{}, resources); c.Stats().Built == built {
		t.Error("the variants share their bytes")
	}
}

// TestAChangeCostsItsRun: a list that differs from another in one resource, one
// more or one less, shares the rest with it.
func TestAChangeCostsItsRun(t *testing.T) {
	t.Parallel()
	const n = 6000
	resources := numbered(t, n)
	changed := slices.Clone(resources)
	changed[n/2] = res(t, changed[n/2].Name, "changed")
	inbound := res(t, "inbound|8080||", "of one workload")
	for what, other := range map[string][]*resource.Resource{
		"changed": changed,
		"more":    slices.Insert(slices.Clone(resources), 0, inbound),
		"less":    slices.Delete(slices.Clone(resources), n/2, n/2+1),
	} {
		c := newCache()
		first := c.World(encode.Header{}, resources)
		second := c.World(encode.Header{}, other)
		if size := ownBytes(second, first); size > first.Size()/10 {
			t.Errorf("%s: %d of %d bytes are its own", what, size, second.Size())
		}
	}
}

// TestLargeContentIsNotCopied: the message has the bytes of the resource itself.
func TestLargeContentIsNotCopied(t *testing.T) {
	t.Parallel()
	r := res(t, "routes", strings.Repeat("large", 1_000_000))
	m := newCache().Delta(encode.Header{}, []*resource.Resource{r}, nil)
	if !slices.ContainsFunc(m.Buffers(), func(b mem.Buffer) bool {
		return &b.ReadOnlyData()[0] == &r.Body.Value[0]
	}) {
		t.Error("none of the buffers is the resource's")
	}
}

// TestTheCacheIsBounded in bytes and in age.
func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := encode.NewBounded("portolan", 100<<10)
		m := c.Delta(encode.Header{}, numbered(t, 2000), nil)
		if s := c.Stats(); s.Bytes == 0 || s.Bytes > 100<<10 {
			t.Errorf("%d bytes are kept of %d", s.Bytes, m.Size())
		}
		checkDecodes(t, m, plainDelta(encode.Header{}, numbered(t, 2000), nil))

		last := numbered(t, 1)
		time.Sleep(8 * time.Second)
		c.Delta(encode.Header{}, last, nil)
		time.Sleep(8 * time.Second)
		if left := c.Stats().Bytes; left == 0 || left > 1000 {
			t.Errorf("%d bytes are left after what was not used is gone", left)
		}
		built := c.Stats().Built
		if c.Delta(encode.Header{}, last, nil); c.Stats().Built != built {
			t.Error("what was used was dropped")
		}
		for range 2 { // it is filled again after it was empty
			time.Sleep(time.Minute)
			if left := c.Stats().Bytes; left != 0 {
				t.Errorf("%d bytes are left", left)
			}
			c.Delta(encode.Header{}, last, nil)
		}
	})
}

// BenchmarkFirstSync measures the response of 6,000 resources to one more of many
// clients, by the cache and by protocol buffers.
func BenchmarkFirstSync(b *testing.B) {
	const clients = 200
	resources := numbered(b, 6000)
	header := encode.Header{TypeURL: "type", Nonce: "1-1", Version: "1"}
	b.Run("encoded once", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c := newCache()
			for range clients {
				_, _ = encode.Codec().Marshal(c.Delta(header, resources, nil))
			}
		}
	})
	b.Run("each", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range clients {
				bytes, _ := encode.Codec().Marshal(plainDelta(header, resources, nil))
				bytes.Free()
			}
		}
	})
}
