package mcp_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mcp"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// now is the fixed clock of tests.
var now = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// message is the resource a/x, for tests to break.
func message(t testing.TB) *mcpv1.Resource {
	t.Helper()
	m := &mcpv1.Resource{}
	if err := entry(t, "a", "x", 2).any.UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	return m
}

// broken are ways in which a resource can be at fault.
var broken = map[string]struct {
	change  func(m *mcpv1.Resource)
	says    string
	refused bool // by a NACK
}{
	"no metadata":          {func(m *mcpv1.Resource) { m.Metadata = nil }, `the name ""`, true},
	"no namespace":         {func(m *mcpv1.Resource) { m.Metadata.Name = "x" }, "where namespace/name belongs", true},
	"an empty namespace":   {func(m *mcpv1.Resource) { m.Metadata.Name = "/x" }, "where namespace/name belongs", true},
	"three parts":          {func(m *mcpv1.Resource) { m.Metadata.Name = "a/x/y" }, "where namespace/name belongs", true},
	"no body":              {func(m *mcpv1.Resource) { m.Body = nil }, "has no body", true},
	"a body that is cut":   {func(m *mcpv1.Resource) { m.Body.Value = m.Body.Value[:len(m.Body.Value)-1] }, "cannot be decoded", true},
	"another kind":         {func(m *mcpv1.Resource) { m.Body.TypeUrl = "type.googleapis.com/istio.networking.v1alpha3.Gateway" }, "where a istio.networking.v1alpha3.ServiceEntry belongs", false},
	"an unknown version":   {func(m *mcpv1.Resource) { m.Body.TypeUrl = "type.googleapis.com/istio.networking.v7.ServiceEntry" }, "its body is a istio.networking.v7.ServiceEntry", false},
	"no schema":            {func(m *mcpv1.Resource) { m.Body.TypeUrl = "type.googleapis.com/example.Widget" }, "its body is a example.Widget", false},
	"a secret":             {func(m *mcpv1.Resource) { m.Body.TypeUrl = "type.googleapis.com/k8s.io.api.core.v1.Secret" }, "its body is a k8s.io.api.core.v1.Secret", false},
	"an invalid spec":      {func(m *mcpv1.Resource) { m.Body.Value = nil }, "spec.hosts", false},
	"an invalid label":     {func(m *mcpv1.Resource) { m.Metadata.Labels = map[string]string{"-": "x"} }, "metadata.labels", false},
	"an invalid namespace": {func(m *mcpv1.Resource) { m.Metadata.Name = "A_/x" }, "metadata.namespace", false},
	"from the future":      {func(m *mcpv1.Resource) { m.Metadata.CreateTime = timestamppb.New(now.Add(time.Hour)) }, "is in the future", false},
	"no time":              {func(m *mcpv1.Resource) { m.Metadata.CreateTime = &timestamppb.Timestamp{Nanos: -1} }, "its time of creation is none", false},
}

func TestDecode(t *testing.T) {
	t.Parallel()
	kind := schema.Pilot().Kind(schema.ServiceEntry)
	for name, c := range broken {
		m := message(t)
		c.change(m)
		if object, fault := mcp.Decode(kind, "", pack(t, m), now); object != nil || !strings.Contains(fault, c.says) {
			t.Errorf("%s: %v, %q; want %q", name, object, fault, c.says)
		}
	}
	if _, fault := mcp.Decode(kind, "a/y", pack(t, message(t)), now); fault != `its metadata have the name "a/x"` {
		t.Errorf("under another name: %s", fault)
	}
	for name, resource := range map[string]*anypb.Any{
		"nothing": nil, "empty": {}, "another message": pack(t, &mcpv1.Metadata{}), "garbage": {TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: []byte{0xff}},
	} {
		if object, fault := mcp.Decode(kind, "a/x", resource, now); object != nil || !strings.HasPrefix(fault, "is no istio.mcp.v1alpha1.Resource: ") {
			t.Errorf("%s: %v, %q", name, object, fault)
		}
	}
}

// TestWhatIsTaken: the metadata of an object come from its resource, and its version
// follows from the peer's version and from the content.
func TestWhatIsTaken(t *testing.T) {
	t.Parallel()
	kind := schema.Pilot().Kind(schema.ServiceEntry)
	decode := func(change func(m *mcpv1.Resource)) *config.Config {
		t.Helper()
		m := message(t)
		change(m)
		object, fault := mcp.Decode(kind, "", pack(t, m), now)
		if fault != "" {
			t.Fatal(fault)
		}
		return object
	}
	object := decode(func(m *mcpv1.Resource) {
		m.Metadata.CreateTime = timestamppb.New(now.Add(500 * time.Millisecond))
		m.Metadata.Annotations = map[string]string{config.SourceAnnotation: "elsewhere", "note": "kept"}
	})
	if !object.CreationTimestamp.Equal(now) || len(object.Annotations) != 1 || object.Annotations["note"] != "kept" || object.Labels["round"] != "2" || object.UID == "" || object.Generation != 1 {
		t.Errorf("taken is %+v", object.Meta)
	}
	if _, isRevision := object.Revision(); isRevision || !strings.HasPrefix(object.ResourceVersion, "1002-") {
		t.Errorf("the version is %s", object.ResourceVersion)
	}
	same := decode(func(*mcpv1.Resource) {})
	if again := decode(func(*mcpv1.Resource) {}); again.ResourceVersion != same.ResourceVersion || again.UID != same.UID {
		t.Errorf("%s and %s of one resource", again.ResourceVersion, same.ResourceVersion)
	}
	if !same.CreationTimestamp.Equal(time.Unix(0, 0)) {
		t.Errorf("without a time it is of %s", same.CreationTimestamp)
	}
	for name, change := range map[string]func(m *mcpv1.Resource){
		"the peer's version":      func(m *mcpv1.Resource) { m.Metadata.Version = "1003" },
		"content of one version":  func(m *mcpv1.Resource) { m.Metadata.Labels["round"] = "3" },
		"creation of one version": func(m *mcpv1.Resource) { m.Metadata.CreateTime = timestamppb.New(now) },
		"no version":              func(m *mcpv1.Resource) { m.Metadata.Version = "" },
		"a version that is long":  func(m *mcpv1.Resource) { m.Metadata.Version = strings.Repeat("9", 100) },
		"a version of two lines":  func(m *mcpv1.Resource) { m.Metadata.Version = "1\n2" },
	} {
		if other := decode(change); other.ResourceVersion == same.ResourceVersion && !strings.Contains(name, "version that") || len(other.ResourceVersion) > 100 || strings.ContainsAny(other.ResourceVersion, " \n") {
			t.Errorf("%s: %q", name, other.ResourceVersion)
		}
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha3"} {
		decode(func(m *mcpv1.Resource) {
			m.Body.TypeUrl = "type.googleapis.com/istio.networking." + version + ".ServiceEntry"
		})
	}
	decode(func(m *mcpv1.Resource) { m.Metadata.CreateTime = timestamppb.New(now.Add(time.Minute)) }) // a clock that is ahead
}

// TestBadInputTakesNothingAway: a resource at fault keeps its last content and is
// reported until it is fixed or gone. All others are accepted. Only undecodable
// resources cause a NACK.
func TestBadInputTakesNothingAway(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(t *testing.T, variant mcp.Variant) {
		for _, name := range slices.Sorted(maps.Keys(broken)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := broken[name]
				p := newPeer(t, nil)
				p.set(entries, map[string]resource{"a/x": entry(t, "a", "x", 1), "a/y": entry(t, "a", "y", 1)})
				s := synced(t, p, variant, func(o *mcp.Options) { o.Now = func() time.Time { return now } })
				m := message(t)
				c.change(m)
				bad := map[string]resource{"a/x": {"1002", pack(t, m)}, "a/y": entry(t, "a", "y", 2), "a/z": entry(t, "a", "z", 1)}
				renamed := strings.Contains(name, "invalid namespace")
				p.set(entries, bad)
				x := "1"
				if renamed && variant == mcp.StateOfTheWorld {
					x = "-" // the fault makes it another resource
				}
				s.awaitRounds(map[string]string{"a/y": "2", "a/z": "1", "a/x": x})
				problems := s.c.Problems()
				if variant == mcp.Delta && renamed {
					c.says = "its metadata have the name"
				}
				if len(problems) != 1 || !strings.Contains(problems[0].String(), c.says) || problems[0].Since != now || problems[0].Warning {
					t.Fatalf("the problems are %+v, want %q", problems, c.says)
				}
				named := problems[0].Object == "serviceentry/a/x"
				if !renamed && (variant == mcp.Delta || !c.refused) && (!named || !problems[0].Serving) {
					t.Errorf("the problem is of %q, served %v", problems[0].Object, problems[0].Serving)
				}
				if got := s.c.Status().Broken; got != 1 {
					t.Errorf("%d are broken", got)
				}
				s.Eventually("the answer is refused, or not", func() bool {
					of := slices.DeleteFunc(p.receivedRequests(), func(r request) bool { return r.typeURL != entries })
					return len(of) == 3 && (of[2].refused != nil) == c.refused && of[1].refused == nil
				})
				if err := s.c.Degraded(); err != nil || s.c.Whole() {
					t.Errorf("for one object all is degraded: %v; or nothing is missing: %v", err, s.c.Whole())
				}
				p.set(entries, map[string]resource{"a/x": entry(t, "a", "x", 3)})
				s.awaitRounds(map[string]string{"a/x": "3"})
				s.Eventually("it is mended", func() bool { return len(s.c.Problems()) == 0 && s.c.Whole() })
				p.set(entries, map[string]resource{"a/x": bad["a/x"], "a/y": {}})
				s.Eventually("it is broken again", func() bool { return len(s.c.Problems()) == 1 })
				p.set(entries, map[string]resource{"a/x": {}})
				s.Eventually("it is gone", func() bool {
					return len(s.c.Problems()) == 0 && s.round("a", "x") == "-" && s.round("a", "y") == "-"
				})
			})
		}
	})
}

// TestABrokenObjectAtTheStart: it is absent and reported; all others are served.
func TestABrokenObjectAtTheStart(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(t *testing.T, variant mcp.Variant) {
		p := newPeer(t, nil)
		p.set(entries, map[string]resource{"a/x": {"1", &anypb.Any{TypeUrl: "type.googleapis.com/example.Widget"}}, "a/y": entry(t, "a", "y", 1)})
		s := synced(t, p, variant)
		s.awaitRounds(map[string]string{"a/y": "1", "a/x": "-"})
		if problems := s.c.Problems(); len(problems) != 1 || problems[0].Serving {
			t.Errorf("the problems are %+v", problems)
		}
		s.Eventually("the answer is refused", func() bool { return len(p.refusals()) > 0 })
		if got := s.c.Status().Refused; got != 1 {
			t.Errorf("%d answers were refused", got)
		}
	})
}

// TestAnObjectTwice: the first one of a response counts.
func TestAnObjectTwice(t *testing.T) {
	t.Parallel()
	p := newPeer(t, nil)
	p.set(entries, map[string]resource{"a/x": entry(t, "a", "x", 1), "a/x again": entry(t, "a", "x", 2)})
	s := synced(t, p, mcp.StateOfTheWorld)
	s.awaitRounds(map[string]string{"a/x": "1"})
	if problems := s.c.Problems(); len(problems) != 1 || !strings.Contains(problems[0].String(), "serviceentry/a/x: is there twice") {
		t.Errorf("the problems are %+v", problems)
	}
	p.set(entries, map[string]resource{"a/x again": {}, "a/y": entry(t, "a", "y", 1)})
	s.awaitRounds(map[string]string{"a/x": "1", "a/y": "1"})
	s.Eventually("it is mended", func() bool { return len(s.c.Problems()) == 0 })
}

// TestFieldsThatAreNotKnown: an object of a newer peer is served, with a warning.
func TestFieldsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	p := newPeer(t, nil)
	m := message(t)
	m.Body.Value = protowire.AppendVarint(protowire.AppendTag(m.Body.Value, 1000, protowire.VarintType), 1)
	p.set(entries, map[string]resource{"a/x": {"1002", pack(t, m)}})
	s := synced(t, p, mcp.Delta)
	s.awaitRounds(map[string]string{"a/x": "2"})
	if problems := s.c.Problems(); len(problems) != 1 || !problems[0].Warning || s.c.Status().Broken != 0 {
		t.Errorf("the problems are %+v", problems)
	}
}

// TestAnAnswerNobodyAskedFor: it is refused, and nothing of it is accepted.
func TestAnAnswerNobodyAskedFor(t *testing.T) {
	t.Parallel()
	p := newPeer(t, nil)
	p.unasked = "v1/Secret"
	p.set(p.unasked, map[string]resource{"a/x": entry(t, "a", "x", 1)})
	s := synced(t, p, mcp.Delta)
	s.Eventually("it is refused", func() bool {
		return slices.Contains(p.refusals(), `the type "v1/Secret" was not requested`)
	})
	if n := s.c.Snapshot().Configs().Len(); n != 0 || s.c.Degraded() != nil {
		t.Errorf("%d objects, %v", n, s.c.Degraded())
	}
}

// FuzzDecode decodes any bytes: a decoded object has a name, is valid, and decodes to
// the same again.
func FuzzDecode(f *testing.F) {
	f.Add(entry(f, "a", "x", 1).any.GetValue())
	for _, c := range broken {
		m := message(f)
		c.change(m)
		f.Add(pack(f, m).GetValue())
	}
	kinds := schema.Pilot().All()
	f.Fuzz(func(t *testing.T, data []byte) {
		resource := &anypb.Any{TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: data}
		for _, kind := range kinds {
			object, fault := mcp.Decode(kind, "", resource, now)
			if (object == nil) == (fault == "") {
				t.Fatalf("%v and %q", object, fault)
			}
			if object == nil {
				continue
			}
			if _, err := kind.Validate(object); err != nil || object.Name == "" || object.Namespace == "" {
				t.Errorf("taken is %s: %v", object.Key(), err)
			}
			again := object.Clone()
			version := message(t)
			_ = proto.Unmarshal(data, version)
			if err := mcp.Stamp(again, version.GetMetadata().GetVersion()); err != nil || again.ResourceVersion != object.ResourceVersion {
				t.Errorf("%s becomes %s: %v", object.ResourceVersion, again.ResourceVersion, err)
			}
		}
	})
}

// BenchmarkFirstSync decodes and takes 10,000 objects of a peer.
func BenchmarkFirstSync(b *testing.B) {
	p := newPeer(b, nil)
	all := map[string]resource{}
	for i := range 10_000 {
		object := cachetest.ServiceEntry("a", fmt.Sprint("x", i), i)
		object.ResourceVersion = "1"
		all["a/"+object.Name] = resourceOf(b, object)
	}
	p.set(entries, all)
	for b.Loop() {
		s := start(b, p, mcp.Delta)
		s.Eventually("all is there", func() bool { return s.c.Snapshot().Configs().Len() == len(all) })
	}
}
