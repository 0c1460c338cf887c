package encode_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/encode"
)

// received encodes a request, cut into pieces as gRPC may deliver it.
func received(tb testing.TB, q proto.Message) mem.BufferSlice {
	tb.Helper()
	bytes, err := proto.Marshal(q)
	if err != nil {
		tb.Fatal(err)
	}
	var out mem.BufferSlice
	for piece := range slices.Chunk(bytes, 100) {
		out = append(out, mem.SliceBuffer(piece))
	}
	return out
}

func request(table *nameset.Table) (*encode.Request, *discoveryv3.DeltaDiscoveryRequest) {
	into := &discoveryv3.DeltaDiscoveryRequest{}
	return &encode.Request{Into: into, Table: table, Variant: protocol.Delta}, into
}

func subscription(n int) *discoveryv3.DeltaDiscoveryRequest {
	q := &discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "one"}, TypeUrl: "type", ResourceNamesUnsubscribe: []string{"y", "x", "y"},
		InitialResourceVersions: map[string]string{"a": "1", "c": "", "b": "2"}, ResponseNonce: "nonce",
	}
	for i := range n {
		q.ResourceNamesSubscribe = append(q.ResourceNamesSubscribe, fmt.Sprintf("outbound|80||service-%05d", i))
	}
	return q
}

// TestARequestIsDecodedButForItsNames: the names become sets of the table, and Into gets
// all other fields.
func TestARequestIsDecodedButForItsNames(t *testing.T) {
	t.Parallel()
	table := nameset.NewTable()
	for _, n := range []int{0, 1, 100} {
		q := subscription(n)
		r, into := request(table)
		if err := r.Decode(received(t, q)); err != nil {
			t.Fatal(err)
		}
		if got := r.Names[0]; got != table.Of(q.GetResourceNamesSubscribe()) && n >= 16 || got.Len() != n {
			t.Errorf("%d names are asked for, not the %d of the request", got.Len(), n)
		}
		if d := cmp.Diff([]string{"x", "y"}, slices.Collect(r.Names[1].All())); d != "" {
			t.Errorf("given up (-want +got):\n%s", d)
		}
		if d := cmp.Diff(protocol.Versions{{Name: "a", Version: "1"}, {Name: "b", Version: "2"}, {Name: "c"}}, r.Stated); d != "" {
			t.Errorf("stated (-want +got):\n%s", d)
		}
		q.ResourceNamesSubscribe, q.ResourceNamesUnsubscribe, q.InitialResourceVersions = nil, nil, nil
		if d := cmp.Diff(q, into, protocmp.Transform()); d != "" {
			t.Errorf("the rest (-want +got):\n%s", d)
		}
	}
}

// TestAMalformedRequestIsRefused, whatever is wrong with it.
func TestAMalformedRequestIsRefused(t *testing.T) {
	t.Parallel()
	whole := received(t, subscription(3)).Materialize()
	for what, bytes := range map[string][]byte{
		"cut off":                       whole[:len(whole)-3],
		"a name that is no text":        append(slices.Clone(whole), 3<<3|2, 1, 0xff),
		"a field without a number":      append(slices.Clone(whole), 2, 0),
		"a type that is no text":        append(slices.Clone(whole), 2<<3|2, 1, 0xff),
		"a name that is too long":       append(slices.Clone(whole), 3<<3|2, 200, 1),
		"a stated name that is no text": append(slices.Clone(whole), 5<<3|2, 3, 1<<3|2, 1, 0xff),
		"a version that is no text":     append(slices.Clone(whole), 5<<3|2, 3, 2<<3|2, 1, 0xff),
		"a version that is cut off":     append(slices.Clone(whole), 5<<3|2, 3, 2<<3|2, 2, 'a'),
	} {
		r, _ := request(nameset.NewTable())
		if err := r.Decode(mem.BufferSlice{mem.SliceBuffer(bytes)}); err == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
	// A field of another wire type is unknown, and skipped.
	r, _ := request(nil)
	if err := r.Decode(mem.BufferSlice{mem.SliceBuffer(append(slices.Clone(whole), 3<<3, 1))}); err != nil || r.Names[0].Len() != 3 {
		t.Errorf("with an unknown field: %v", err)
	}
}

// TestNamesThatAreKnownAreNotDecodedAgain: a request for thousands of names that
// another client has sent before allocates as much as one for a hundred.
func TestNamesThatAreKnownAreNotDecodedAgain(t *testing.T) {
	counts := map[int]float64{}
	for _, n := range []int{100, 6_000} {
		table := nameset.NewTable()
		data := received(t, subscription(n))
		first, _ := request(table)
		if err := first.Decode(data); err != nil {
			t.Fatal(err)
		}
		counts[n] = testing.AllocsPerRun(20, func() {
			r, _ := request(table)
			if err := r.Decode(data); err != nil || r.Names[0] != first.Names[0] {
				t.Fatalf("another set: %v", err)
			}
		})
	}
	t.Logf("allocations: %v", counts)
	if counts[6_000] > counts[100]+10 {
		t.Errorf("%.0f allocations for 6,000 names, %.0f for 100", counts[6_000], counts[100])
	}
}

// TestAListThatIsKnownIsPassedOver, and nothing else: each of these requests is read as
// it is, however many similar ones were read before.
func TestAListThatIsKnownIsPassedOver(t *testing.T) {
	t.Parallel()
	list := func(from, to int) []string {
		var out []string
		for i := from; i < to; i++ {
			out = append(out, fmt.Sprintf("outbound|80||service-%05d", i))
		}
		return out
	}
	tag := func(q *discoveryv3.DeltaDiscoveryRequest) []byte { return received(t, q).Materialize() }
	subscribe := func(names []string) []byte {
		return tag(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: names})
	}
	rest := tag(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type", ResponseNonce: "nonce"})
	other := tag(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: list(0, 100)})
	changed := list(0, 300)
	changed[299] = "outbound|80||service-00299-"
	messages := map[string][]byte{
		"the list":          slices.Concat(subscribe(list(0, 300)), rest),
		"shorter":           slices.Concat(subscribe(list(0, 299)), rest),
		"longer":            slices.Concat(subscribe(list(0, 301)), rest),
		"another at last":   slices.Concat(subscribe(changed), rest),
		"in two parts":      slices.Concat(subscribe(list(0, 300)), rest, subscribe(list(400, 500))),
		"known parts":       slices.Concat(subscribe(list(0, 300)), rest, subscribe(list(0, 300))),
		"the rest first":    slices.Concat(rest, subscribe(list(0, 300))),
		"beside another":    slices.Concat(subscribe(list(0, 300)), other, rest),
		"another in it":     slices.Concat(subscribe(list(0, 150)), other, subscribe(list(150, 300)), rest),
		"not in order":      slices.Concat(subscribe(list(150, 300)), subscribe(list(0, 150)), rest),
		"alone, to the end": subscribe(list(0, 300)),
	}
	table := nameset.NewTable()
	var used []nameset.Set // by clients: what nobody uses is not known
	defer func() { runtime.KeepAlive(used) }()
	for round := range 5 {
		for _, what := range slices.Sorted(maps.Keys(messages)) { // of two forms of a set the last is known
			message := messages[what]
			want := &discoveryv3.DeltaDiscoveryRequest{}
			if err := proto.Unmarshal(message, want); err != nil {
				t.Fatal(err)
			}
			r, into := request(table)
			if err := r.Decode(mem.BufferSlice{mem.SliceBuffer(slices.Clone(message))}); err != nil {
				t.Fatal(err)
			}
			got := []nameset.Set{r.Names[0], r.Names[1]}
			used = append(used, got...)
			if got[0] != table.Of(want.GetResourceNamesSubscribe()) || got[1] != table.Of(want.GetResourceNamesUnsubscribe()) {
				t.Errorf("%s, round %d: %d and %d names, want %d and %d", what, round, got[0].Len(), got[1].Len(),
					len(want.GetResourceNamesSubscribe()), len(want.GetResourceNamesUnsubscribe()))
			}
			want.ResourceNamesSubscribe, want.ResourceNamesUnsubscribe = nil, nil
			if d := cmp.Diff(want, into, protocmp.Transform()); d != "" {
				t.Errorf("%s, the rest (-want +got):\n%s", what, d)
			}
		}
	}
	if _, known := table.Known(messages["the list"]); known != len(subscribe(list(0, 300))) {
		t.Errorf("of a list that was read again and again %d bytes are known", known)
	}
}

// BenchmarkRequest measures a request for 6,000 names that the table knows, and an
// acknowledgement.
func BenchmarkRequest(b *testing.B) {
	table := nameset.NewTable()
	for what, q := range map[string]*discoveryv3.DeltaDiscoveryRequest{
		"subscription":    subscription(6_000),
		"acknowledgement": {TypeUrl: strings.Repeat("t", 60), ResponseNonce: "123-4"},
	} {
		data := received(b, q)
		first, _ := request(table)
		if err := first.Decode(data); err != nil {
			b.Fatal(err)
		}
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, _ := request(table)
				if err := r.Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		_ = first.Names[0]
	}
}

// TestWhatIsStatedIsOneCopy: however many versions a client states, Decode makes few
// allocations, of the text and one list.
func TestWhatIsStatedIsOneCopy(t *testing.T) {
	counts := map[int]float64{}
	for _, n := range []int{100, 6_000} {
		q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type", InitialResourceVersions: map[string]string{}}
		for i := range n {
			q.InitialResourceVersions[fmt.Sprintf("outbound|80||service-%05d", i)] = "0123456789abcdef"
		}
		data := mem.BufferSlice{mem.SliceBuffer(received(t, q).Materialize())}
		counts[n] = testing.AllocsPerRun(5, func() {
			r, _ := request(nil)
			if err := r.Decode(data); err != nil || len(r.Stated) != n {
				t.Fatal(len(r.Stated), err)
			}
		})
	}
	if counts[6_000] > counts[100]+2 {
		t.Errorf("allocations by what is stated: %v", counts)
	}
}
