package config_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func edge() *config.Config {
	return &config.Config{
		Meta: config.Meta{
			GroupVersionKind: schema.Gateway, Name: "edge", Namespace: "shop", ResourceVersion: "815", Generation: 3, UID: "4b1d",
			Labels: map[string]string{"b": "true", "a": "1"}, Annotations: map[string]string{"note": "<a & b>"},
			CreationTimestamp: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		},
		Spec: &networking.Gateway{
			Selector: map[string]string{"z": "1", "y": "2"},
			Servers:  []*networking.Server{{Port: &networking.Port{Number: 80, Name: "http", Protocol: "HTTP"}, Hosts: []string{"*"}}},
		},
		Status: &metav1alpha1.IstioStatus{Conditions: []*metav1alpha1.IstioCondition{{Type: "Accepted", Status: "True"}}},
	}
}

func TestToJSONIsOneLineInAFixedOrder(t *testing.T) {
	t.Parallel()
	want := `{"apiVersion":"networking.istio.io/v1beta1","kind":"Gateway",` +
		`"metadata":{"name":"edge","namespace":"shop","labels":{"a":"1","b":"true"},"annotations":{"note":"<a & b>"},` +
		`"resourceVersion":"815","creationTimestamp":"2026-01-31T12:00:00Z","generation":3,"uid":"4b1d"},` +
		`"spec":{"servers":[{"port":{"number":80,"protocol":"HTTP","name":"http"},"hosts":["*"]}],"selector":{"y":"2","z":"1"}},` +
		`"status":{"conditions":[{"type":"Accepted","status":"True"}]}}`
	for range 50 {
		got, err := config.ToJSON(edge(), "v1beta1")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(got)); d != "" {
			t.Fatalf("JSON (-want +got):\n%s", d)
		}
	}
}

func TestToYAMLReadsAsUsersWriteIt(t *testing.T) {
	t.Parallel()
	want := `apiVersion: networking.istio.io/v1
kind: Gateway
metadata:
  annotations:
    note: <a & b>
  creationTimestamp: "2026-01-31T12:00:00Z"
  generation: 3
  labels:
    a: "1"
    b: "true"
  name: edge
  namespace: shop
  resourceVersion: "815"
  uid: 4b1d
spec:
  selector:
    "y": "2"
    z: "1"
  servers:
  - hosts:
    - '*'
    port:
      name: http
      number: 80
      protocol: HTTP
status:
  conditions:
  - status: "True"
    type: Accepted
`
	got, err := config.ToYAML(edge())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("YAML (-want +got):\n%s", d)
	}
}

func TestFromJSONReadsBackWhatToJSONWrote(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "v1", "v1beta1", "v1alpha3"} {
		text, err := config.ToJSON(edge(), version)
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.FromJSON(text, resolve)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(edge(), got, protocmp.Transform()); d != "" {
			t.Errorf("version %q (-want +got):\n%s", version, d)
		}
	}
}

func TestFromJSONNamesEveryFault(t *testing.T) {
	t.Parallel()
	head := `{"apiVersion":"networking.istio.io/v1","kind":"Gateway",`
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"no JSON", `{"kind": }`, []string{"not valid JSON: invalid character '}' looking for beginning of value (at byte 10)"}},
		{"nothing", ``, []string{"not valid JSON: unexpected end of JSON input (at byte 0)"}},
		{"two values", `{} {}`, []string{"not valid JSON: invalid character '{' after top-level value (at byte 4)"}},
		{"not UTF-8", "{\"kind\": \"\xff\"}", []string{"not valid JSON: the text is not in UTF-8"}},
		{"no object", `[]`, []string{"must be a mapping, is []"}},
		{"null", `null`, []string{"must be a mapping, is null"}},
		{"faults", head + `"metadata":{"name":"a","name":"b","creationTimestamp":"yesterday","generation":"1","uid":{}},"spec":{"server":[]},"status":5}`, []string{
			"gateway/b: metadata.name: is set twice",
			`gateway/b: metadata.creationTimestamp: must be a time such as 2026-01-31T12:00:00Z, is "yesterday"`,
			`gateway/b: metadata.generation: must be a whole number, is "1"`,
			"gateway/b: metadata.uid: must be a string, is {}",
			"gateway/b: spec.server: unknown field: did you mean servers?",
			"gateway/b: status: syntax error (line 1:1): unexpected token 5",
		}},
		{"a list", `{"apiVersion":"v1","kind":"List","items":[]}`, []string{
			`list: unknown kind "List" of apiVersion "v1": see portolan api-resources for those served`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.FromJSON([]byte(test.text), resolve)
			if d := cmp.Diff(test.want, errorLines(t, err)); d != "" {
				t.Errorf("errors (-want +got):\n%s", d)
			}
		})
	}
}

// TestEveryKindRoundTrips fills every field of every kind.
func TestEveryKindRoundTrips(t *testing.T) {
	t.Parallel()
	for _, kind := range schema.Pilot().All() {
		for variant := range 3 {
			spec := kind.Codec.New()
			m, ok := spec.(proto.Message)
			if !ok {
				continue // a Go struct: structure_test.go has them
			}
			fill(m.ProtoReflect(), variant, 6)
			c := &config.Config{Meta: config.Meta{GroupVersionKind: kind.GroupVersionKind, Name: "a", Namespace: "b"}, Spec: spec}
			for _, version := range kind.Versions {
				text, err := config.ToJSON(c, version)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(text), kind.Group+"/"+version) {
					t.Errorf("%s is not presented as %s", kind.Kind, version)
				}
				got, err := config.FromJSON(text, resolve)
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				if d := cmp.Diff(c, got, protocmp.Transform()); d != "" {
					t.Errorf("%s in JSON (-want +got):\n%s", kind.Kind, d)
				}
			}
			text, err := config.ToYAML(c)
			if err != nil {
				t.Fatal(err)
			}
			documents, err := config.Decode("a.yaml", text, resolve)
			if err != nil || len(documents) != 1 {
				t.Fatalf("%s: %v", text, err)
			}
			if d := cmp.Diff(c, documents[0].Config, protocmp.Transform()); d != "" {
				t.Errorf("%s in YAML (-want +got):\n%s", kind.Kind, d)
			}
		}
	}
}

// fill sets the fields of a message, of a oneof the one that variant chooses.
func fill(m protoreflect.Message, variant, depth int) {
	switch m.Descriptor().FullName() {
	case "google.protobuf.Struct":
		filled, _ := structpb.NewStruct(map[string]any{"a": []any{1.5, "b", nil, true}, "c": map[string]any{"d": "25ms"}})
		proto.Merge(m.Interface(), filled)
		return
	case "google.protobuf.Duration":
		m.Set(m.Descriptor().Fields().ByName("seconds"), protoreflect.ValueOfInt64(int64(variant)))
		m.Set(m.Descriptor().Fields().ByName("nanos"), protoreflect.ValueOfInt32(25_000_000))
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		one := fd.ContainingOneof()
		if one != nil && !one.IsSynthetic() && one.Fields().Get(variant%one.Fields().Len()) != fd || depth == 0 && fd.Message() != nil {
			continue
		}
		switch {
		case fd.IsMap():
			key := protoreflect.ValueOfString("app: x").MapKey()
			if fd.MapKey().Kind() == protoreflect.Uint32Kind {
				key = protoreflect.ValueOfUint32(80).MapKey()
			}
			entries := m.Mutable(fd).Map()
			v := entries.NewValue()
			if fd.MapValue().Message() != nil {
				fill(v.Message(), variant, depth-1)
			} else {
				v = scalar(fd.MapValue(), variant)
			}
			entries.Set(key, v)
		case fd.IsList() && fd.Message() != nil:
			fill(m.Mutable(fd).List().AppendMutable().Message(), variant, depth-1)
		case fd.IsList():
			m.Mutable(fd).List().Append(scalar(fd, variant))
		case fd.Message() != nil:
			fill(m.Mutable(fd).Message(), variant, depth-1)
		default:
			m.Set(fd, scalar(fd, variant))
		}
	}
}

func scalar(fd protoreflect.FieldDescriptor, variant int) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString([]string{"yes", "1e3", "<\u2028\x7f\ufeff\U0001F600: #'\"\n"}[variant%3])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, 255, byte(variant)})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get((variant + 1) % values.Len()).Number())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(12.5)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-7)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(4294967295)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-1 << 60)
	default:
		return protoreflect.ValueOfUint64(1 << 63)
	}
}

func TestTheExamplesRoundTrip(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../schema/testdata/served/mesh.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := config.Decode("mesh.yaml", data, resolve)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, d := range documents {
		text, err := config.ToYAML(d.Config)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	again, err := config.Decode("again.yaml", b.Bytes(), resolve)
	if err != nil || len(again) != len(documents) {
		t.Fatalf("%d of %d documents, %v", len(again), len(documents), err)
	}
	for i, d := range documents {
		if diff := cmp.Diff(d.Config, again[i].Config, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-first +second):\n%s", d.Config.Key(), diff)
		}
	}
}

func TestAnObjectWithoutSpecIsStillOne(t *testing.T) {
	t.Parallel()
	text, err := config.ToJSON(&config.Config{Meta: config.Meta{GroupVersionKind: schema.Gateway, Name: "a"}}, "")
	if err != nil || !json.Valid(text) || !strings.HasSuffix(string(text), `"spec":{}}`) {
		t.Errorf("%s %v", text, err)
	}
}

// TestMetadataJSONIsThatOfTheObject: the metadata alone is what the whole object has.
func TestMetadataJSONIsThatOfTheObject(t *testing.T) {
	t.Parallel()
	for _, object := range []*config.Config{edge(), {Meta: config.Meta{GroupVersionKind: schema.Gateway, Name: "bare"}, Spec: &networking.Gateway{}}} {
		whole, err := config.ToJSON(object, "")
		if err != nil {
			t.Fatal(err)
		}
		metadata, err := config.MetadataJSON(object)
		if err != nil || !bytes.Contains(whole, append([]byte(`"metadata":`), metadata...)) {
			t.Errorf("%s, %v: not the metadata of %s", metadata, err, whole)
		}
	}
}
