package discovery_test

import (
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// differ changes each field of a struct, also those of nested structs, one at a time. It calls
// f with the path of the field and the changed struct.
func differ[T any](t *testing.T, base T, f func(path string, changed *T)) {
	t.Helper()
	var walk func(path string, at []int, typ reflect.Type)
	walk = func(path string, at []int, typ reflect.Type) {
		for i := range typ.NumField() {
			field, index := typ.Field(i), append(slices.Clone(at), i)
			if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[time.Time]() {
				walk(path+field.Name+".", index, field.Type)
				continue
			}
			changed := base
			target := reflect.ValueOf(&changed).Elem().FieldByIndex(index)
			target.Set(other(t, target))
			f(path+field.Name, &changed)
		}
	}
	walk("", nil, reflect.TypeFor[T]())
}

// other returns a value of the type of v that is not v.
func other(t *testing.T, v reflect.Value) reflect.Value {
	t.Helper()
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		out.SetInt(v.Int() + 1)
	case reflect.Uint32:
		out.SetUint(v.Uint() + 1)
	case reflect.Bool:
		out.SetBool(!v.Bool())
	case reflect.Map:
		out.Set(reflect.MakeMap(v.Type()))
		key := reflect.New(v.Type().Key()).Elem()
		key.SetString("other")
		out.SetMapIndex(key, reflect.Zero(v.Type().Elem()))
	case reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1))
	case reflect.Struct:
		out.Set(reflect.ValueOf(time.Unix(rand.Int63n(1e9)+1, 0)))
	default:
		t.Fatalf("no other value of kind %s", v.Kind())
	}
	return out
}

func TestEqualMindsEveryField(t *testing.T) {
	t.Parallel()
	service := discovery.Service{Hostname: "a", Attributes: discovery.Attributes{Labels: labels.Instance{"a": "b"}}}
	differ(t, service, func(path string, changed *discovery.Service) {
		if service.Equal(changed) || changed.Equal(&service) {
			t.Errorf("Service.Equal overlooks %s", path)
		}
	})
	endpoint := discovery.Endpoint{Address: "10.0.0.1", Labels: labels.Instance{"a": "b"}}
	differ(t, endpoint, func(path string, changed *discovery.Endpoint) {
		if endpoint.Equal(changed) || changed.Equal(&endpoint) {
			t.Errorf("Endpoint.Equal overlooks %s", path)
		}
	})
	workload := discovery.WorkloadInstance{Name: "a"}
	differ(t, workload, func(path string, changed *discovery.WorkloadInstance) {
		if workload.Equal(changed) || changed.Equal(&workload) {
			t.Errorf("WorkloadInstance.Equal overlooks %s", path)
		}
	})
}

func TestEqualOfNothing(t *testing.T) {
	t.Parallel()
	var none *discovery.Endpoint
	if !none.Equal(nil) || none.Equal(&discovery.Endpoint{}) || (&discovery.Endpoint{}).Equal(nil) {
		t.Error("Endpoint: nil is equal to nil and nothing else")
	}
	if (&discovery.Service{}).Equal(nil) || !(&discovery.Service{}).Equal(&discovery.Service{}) {
		t.Error("Service: nil is equal to nil and nothing else")
	}
	if (&discovery.WorkloadInstance{}).Equal(nil) {
		t.Error("WorkloadInstance: nil is equal to nil and nothing else")
	}
}

func TestEndpointEqualAllocatesNothing(t *testing.T) {
	a := &discovery.Endpoint{Address: "10.0.0.1", Labels: labels.Instance{"app": "web"}}
	b := &discovery.Endpoint{Address: "10.0.0.1", Labels: labels.Instance{"app": "web"}}
	if n := testing.AllocsPerRun(100, func() { _ = a.Equal(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCompareServices(t *testing.T) {
	t.Parallel()
	at := func(sec int64, name, namespace string, hostname host.Name, address string) *discovery.Service {
		return &discovery.Service{
			Hostname: hostname, Address: address, CreationTime: time.Unix(sec, 0),
			Attributes: discovery.Attributes{Name: name, Namespace: namespace},
		}
	}
	ordered := []*discovery.Service{
		at(1, "z", "z", "z", "9"), // the oldest first
		at(2, "a", "z", "z", "9"), // then by name
		at(2, "b", "a", "z", "9"), // then by namespace
		at(2, "b", "b", "a", "9"), // then by host
		at(2, "b", "b", "z", "1"), // then by address
		at(2, "b", "b", "z", "2"),
	}
	mustSort(t, ordered, discovery.CompareServices)
	sub := at(2, "b", "b", "z", "1")
	sub.CreationTime = sub.CreationTime.Add(time.Millisecond)
	if discovery.CompareServices(sub, ordered[4]) != 0 {
		t.Error("less than a second makes a difference")
	}
}

func TestCompareEndpoints(t *testing.T) {
	t.Parallel()
	at := func(port, address string, number int, namespace, name string) *discovery.Endpoint {
		return &discovery.Endpoint{ServicePortName: port, Address: address, Port: number, Namespace: namespace, WorkloadName: name}
	}
	mustSort(t, []*discovery.Endpoint{
		at("a", "9", 9, "z", "z"),
		at("b", "1", 9, "z", "z"),
		at("b", "2", 1, "z", "z"),
		at("b", "2", 2, "a", "z"),
		at("b", "2", 2, "b", "a"),
		at("b", "2", 2, "b", "b"),
	}, discovery.CompareEndpoints)
}

func mustSort[T any](t *testing.T, ordered []T, compare func(a, b T) int) {
	t.Helper()
	for i, a := range ordered {
		for j, b := range ordered {
			if got := compare(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%d against %d: %d", i, j, got)
			}
		}
	}
}

func TestVisibility(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		exportTo      []string
		meshDefault   []string
		own, stranger bool
	}{
		{"nothing said is public", nil, nil, true, true},
		{"the mesh default stands in", nil, []string{"."}, true, false},
		{"the object outranks the mesh default", []string{"*"}, []string{"."}, true, true},
		{"dot is the own namespace", []string{"."}, nil, true, false},
		{"a namespace by name", []string{"away"}, nil, false, true},
		{"tilde is nobody", []string{"~"}, nil, false, false},
		{"tilde outranks names", []string{"~", "away"}, nil, false, false},
		{"star outranks tilde", []string{"~", "*"}, nil, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := discovery.ParseVisibility(tc.exportTo, "home", tc.meshDefault)
			if v.VisibleTo("home") != tc.own || v.VisibleTo("away") != tc.stranger {
				t.Errorf("%v: home %t, away %t", v, v.VisibleTo("home"), v.VisibleTo("away"))
			}
		})
	}
	if got := discovery.ParseVisibility([]string{"b", ".", "b", "a"}, "a", nil); !slices.Equal(got, discovery.Visibility{"a", "b"}) {
		t.Errorf("got %v, want a sorted set", got)
	}
}

func TestParseProtocol(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]discovery.Protocol{
		"http": discovery.HTTP, "GRPC": discovery.GRPC, "grpc-web": discovery.GRPCWeb, "Mongo": discovery.Mongo,
		"": discovery.Unsupported, "smtp": discovery.Unsupported,
	} {
		if got := discovery.ParseProtocol(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if !discovery.GRPC.IsHTTP() || !discovery.GRPC.IsHTTP2() || discovery.HTTP.IsHTTP2() || discovery.HTTPS.IsHTTP() {
		t.Error("what is HTTP")
	}
}
