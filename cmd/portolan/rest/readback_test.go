package rest_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestWhatIsAcceptedIsReadBack gives etcd specs of every Istio kind with values that are
// hard to encode. The API returns unchanged what the store accepts. What the store
// refuses, the API calls invalid.
func TestWhatIsAcceptedIsReadBack(t *testing.T) {
	t.Parallel()
	s := onEtcd(t)
	random := rand.New(rand.NewPCG(1, 2))
	accepted, refused := 0, 0
	kinds := slices.DeleteFunc(slices.Clone(schema.Pilot().All()), func(k *schema.Schema) bool {
		_, message := k.Codec.New().(proto.Message)
		return !message // a Go struct has no such values
	})
	for i := range 300 {
		kind := kinds[i%len(kinds)]
		object := &config.Config{Meta: config.Meta{GroupVersionKind: kind.GroupVersionKind, Namespace: "shop", Name: fmt.Sprintf("o%d", i)}, Spec: kind.Codec.New()}
		wild{random, random.IntN(2) == 0}.fill(object.Spec.(proto.Message).ProtoReflect(), 5)
		store := s.Options.Store
		revision, results, err := store.Apply(t.Context(), []storage.Op{{Verb: storage.Create, Config: object}})
		if err != nil {
			if refused++; !errors.Is(err, storage.ErrInvalid) || len(err.Error()) > 2000 {
				t.Errorf("%s: %.2000v", object.Key(), err)
			}
			continue
		}
		accepted++
		path := fmt.Sprintf("/apis/%s/namespaces/shop/%s/o%d?resourceVersion=%s", kind.APIVersion(), kind.Plural, i, revision)
		a := s.Do(t, "GET", path, "")
		if a.Code != 200 {
			t.Errorf("%s was accepted and is answered %d %s: %v", object.Key(), a.Code, a.Body, object.Spec)
			continue
		}
		got, err := config.FromJSON([]byte(a.Body), schema.Pilot().Type)
		if err != nil {
			t.Errorf("%s: %v", object.Key(), err)
			continue
		}
		if !config.SameSpec(got.Spec, object.Spec) || got.ResourceVersion != results[0].ResourceVersion {
			t.Errorf("%s (-written +read):\n%s", object.Key(), cmp.Diff(object.Spec, got.Spec, protocmp.Transform()))
		}
	}
	if accepted < 100 || refused < 20 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

// wild fills messages; an unsound one also with values that cannot be encoded.
type wild struct {
	*rand.Rand
	unsound bool
}

func (w wild) fill(m protoreflect.Message, depth int) {
	switch known := m.Interface().(type) {
	case *structpb.Struct:
		known.Fields = map[string]*structpb.Value{w.text(): w.value(depth)}
		return
	case *structpb.Value:
		proto.Merge(known, w.value(depth))
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if w.IntN(3) > 0 || depth == 0 && fd.Message() != nil {
			continue
		}
		switch {
		case fd.IsMap():
			entries := m.Mutable(fd).Map()
			v := entries.NewValue()
			if fd.MapValue().Message() != nil {
				w.fill(v.Message(), depth-1)
			} else {
				v = w.scalar(fd.MapValue())
			}
			entries.Set(w.scalar(fd.MapKey()).MapKey(), v)
		case fd.IsList() && fd.Message() != nil:
			for range w.IntN(3) {
				w.fill(m.Mutable(fd).List().AppendMutable().Message(), depth-1)
			}
		case fd.IsList():
			m.Mutable(fd).List().Append(w.scalar(fd))
		case fd.Message() != nil:
			w.fill(m.Mutable(fd).Message(), depth-1)
			w.time(m.Mutable(fd).Message())
		default:
			m.Set(fd, w.scalar(fd))
		}
	}
}

// time forces a time into its range, unless it should be outside.
func (w wild) time(m protoreflect.Message) {
	seconds, nanos := m.Descriptor().Fields().ByName("seconds"), m.Descriptor().Fields().ByName("nanos")
	if seconds != nil && nanos != nil && !w.unsound {
		m.Set(seconds, protoreflect.ValueOfInt64(w.Int64N(1_000_000_000)))
		m.Set(nanos, protoreflect.ValueOfInt32(w.Int32N(1_000_000_000)))
	}
}

func (w wild) value(depth int) *structpb.Value {
	switch kind := w.IntN(7); {
	case w.unsound && kind == 0:
		return []*structpb.Value{{}, structpb.NewNumberValue(math.Inf(-1)), structpb.NewStringValue("\xff"), deeply(2_000)}[w.IntN(4)]
	case kind < 2 && depth > 0:
		return structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{w.value(depth - 1), w.value(depth - 1)}})
	case kind == 2 && depth > 0:
		return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{w.text(): w.value(depth - 1)}})
	case kind == 3:
		return structpb.NewNullValue()
	case kind == 4:
		return deeply(w.IntN(60))
	case kind == 5:
		return structpb.NewNumberValue(w.number())
	}
	return structpb.NewStringValue(w.text())
}

func deeply(n int) *structpb.Value {
	v := structpb.NewBoolValue(true)
	for i := range n {
		if i%2 == 0 {
			v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
		} else {
			v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"": v}})
		}
	}
	return v
}

func (w wild) number() float64 {
	return []float64{0, math.Copysign(0, -1), 1e308, -5e-324, 1 << 53, 0.1, math.MaxInt64}[w.IntN(7)]
}

func (w wild) text() string {
	if w.unsound && w.IntN(5) == 0 {
		return "\xed\xa0\x80"
	}
	return []string{"", "a", "NaN", "1e3", "~", "\x00\x1f\x7f", "\u2028\ufeff\ufffd\U0010ffff", `<"\'&`, strings.Repeat("x", 5000), "a.b/c[d]: e"}[w.IntN(10)]
}

func (w wild) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(w.text())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, 255})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(w.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(w.IntN(5)))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(w.number()))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{w.number(), math.NaN(), math.Inf(1)}[w.IntN(3)])
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(w.Uint32())
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(w.Uint64())
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(w.Uint64()))
	default:
		return protoreflect.ValueOfInt32(int32(w.Uint32()))
	}
}
