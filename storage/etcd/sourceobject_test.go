package etcd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
)

// ofSource is an object as a cache of a cluster has it.
func ofSource(change func(*config.Config)) *config.Config {
	out := stored()
	out.ResourceVersion, out.Domain = "k0123456789abcdef0123", "mesh.internal"
	change(out)
	return out
}

// sourceObjects are objects of every form that a cluster may have.
func sourceObjects() map[string]*config.Config {
	return map[string]*config.Config{
		"a plain one": ofSource(func(*config.Config) {}),
		"as the user wrote it": ofSource(func(c *config.Config) {
			c.SetWritten(`{"hosts":["a.example","b.example"],"location":"MESH_EXTERNAL","ports":[]}`)
		}),
		"an owned one": ofSource(func(c *config.Config) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "of", UID: "7"}}
		}),
		"without a time": ofSource(func(c *config.Config) { c.CreationTimestamp = time.Time{} }),
		"a Go struct": ofSource(func(c *config.Config) {
			c.GroupVersionKind, c.Spec = schematest.Note, schematest.NewNote("shop", "a", "<Tea>", "a", "b").Spec
		}),
		"of no namespace": ofSource(func(c *config.Config) {
			c.GroupVersionKind, c.Spec, c.Namespace = schema.IngressClass, schema.Pilot().Kind(schema.IngressClass).Codec.New(), ""
		}),
		"a healthy workload": ofSource(func(c *config.Config) {
			report := health.Report{Healthy: true, Reason: "Probe", Message: "it answers", Since: time.Unix(1_900_000_001, 0), Probed: time.Unix(1_900_000_002, 5)}
			c.GroupVersionKind, c.Spec = schema.WorkloadEntry, &networking.WorkloadEntry{Address: "10.0.0.1"}
			c.Status = &metav1alpha1.IstioStatus{Conditions: []*metav1alpha1.IstioCondition{report.Condition()}}
		}),
	}
}

func TestDecodeSourceObjectIsTheInverseOfEncode(t *testing.T) {
	t.Parallel()
	for name, want := range sourceObjects() {
		value, err := etcd.EncodeSourceObject(want)
		if err != nil {
			t.Fatal(err)
		}
		again, err := etcd.EncodeSourceObject(want.Clone())
		if err != nil || string(again) != string(value) {
			t.Errorf("%s: two encodings differ: %v", name, err)
		}
		got, err := etcd.DecodeSourceObject(want.Key().Path(), value, schematest.Kinds(), "mesh.internal")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" || got.AsWritten() != want.AsWritten() {
			t.Errorf("%s (-want +got):\n%s%s", name, d, got.AsWritten())
		}
	}
}

// TestSourceObjectsOfOlderServers: what a server saved as JSON, before an upgrade, is the same object.
func TestSourceObjectsOfOlderServers(t *testing.T) {
	t.Parallel()
	for name, want := range sourceObjects() {
		text, err := config.ToJSON(want, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := etcd.DecodeSourceObject(want.Key().Path(), text, schematest.Kinds(), "mesh.internal")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want = want.Clone()
		want.SetWritten(got.AsWritten()) // which is as the text has it
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestDecodeSourceObjectSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	object := ofSource(func(*config.Config) {})
	path := object.Key().Path()
	good, err := etcd.EncodeSourceObject(object)
	if err != nil {
		t.Fatal(err)
	}
	text, err := config.ToJSON(object, "")
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*envelope.SourceObject)) []byte {
		saved := &envelope.SourceObject{}
		if err := envelope.Decode(good, saved); err != nil {
			t.Fatal(err)
		}
		change(saved)
		value, err := envelope.Encode(saved)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for name, c := range map[string]struct {
		path  string
		value []byte
		says  string
	}{
		"no path":                 {"a", good, "not that of an object"},
		"an unknown kind":         {"networking.istio.io/Frob/shop/a", good, "does not know its kind"},
		"nothing":                 {path, nil, "does not begin with"},
		"a newer form":            {path, []byte("ptl\x02"), "does not begin with"},
		"cut off":                 {path, good[:len(good)-3], "proto"},
		"of another object":       {path + "2", good, "another object"},
		"JSON of another object":  {path + "2", text, "another object"},
		"JSON that is cut off":    {path, text[:len(text)-3], "JSON"},
		"JSON with unknown field": {path, []byte(strings.Replace(string(text), `"spec":{`, `"spec":{"frob":1,`, 1)), "frob"},
		"no object":               {path, with(func(s *envelope.SourceObject) { s.Object = nil }), "another object"},
		"no spec":                 {path, with(func(s *envelope.SourceObject) { s.Object.Spec = nil }), "no spec"},
		"another spec":            {path, with(func(s *envelope.SourceObject) { s.Object.Spec.TypeUrl = "type.googleapis.com/frob" }), "its spec"},
		"an unknown field":        {path, with(func(s *envelope.SourceObject) { s.Object.Spec.Value = append(s.Object.Spec.Value, 0xf8, 0xff, 0x01, 1) }), "fields that this server does not know"},
	} {
		got, err := etcd.DecodeSourceObject(c.path, c.value, schema.Pilot(), "")
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v, want an error with %q", name, got, err, c.says)
		}
	}
}

func FuzzDecodeSourceObject(f *testing.F) {
	object := ofSource(func(*config.Config) {})
	value, err := etcd.EncodeSourceObject(object)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add([]byte(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"a","namespace":"shop"},"spec":{"hosts":["a"]}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := etcd.DecodeSourceObject(object.Key().Path(), value, schema.Pilot(), "")
		if err != nil {
			return
		}
		again, err := etcd.EncodeSourceObject(got)
		if err != nil {
			t.Fatal(err)
		}
		same, err := etcd.DecodeSourceObject(object.Key().Path(), again, schema.Pilot(), "")
		if err != nil || !config.SameSpec(got.Spec, same.Spec) || got.ResourceVersion != same.ResourceVersion || !proto.Equal(got.Status, same.Status) {
			t.Errorf("%v reads back as %v: %v", got, same, err)
		}
	})
}

// BenchmarkSourceObject measures an object of 50 kB of a cluster, in the form of the store and in JSON,
// which older servers saved.
func BenchmarkSourceObject(b *testing.B) {
	object := ofSource(func(c *config.Config) {
		spec := c.Spec.(*networking.ServiceEntry)
		for n := range 400 {
			spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{
				Address: fmt.Sprintf("10.7.%d.%d", n>>8, n&255), Locality: "eu/a", Labels: map[string]string{"app": "large.example", "version": fmt.Sprintf("%060d", n*n)},
			})
		}
	})
	for _, form := range []struct {
		name   string
		encode func() ([]byte, error)
	}{
		{"the form of the store", func() ([]byte, error) { return etcd.EncodeSourceObject(object) }},
		{"JSON", func() ([]byte, error) { return config.ToJSON(object, "") }},
	} {
		value, err := form.encode()
		if err != nil {
			b.Fatal(err)
		}
		b.Run("encode/"+form.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err = form.encode()
			}
		})
		b.Run("decode/"+form.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err = etcd.DecodeSourceObject(object.Key().Path(), value, schema.Pilot(), "")
			}
			b.ReportMetric(float64(len(value)), "bytes")
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
