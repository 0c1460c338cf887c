package desired_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// holders makes a resource for each host, with its port. Two pools cover each resource:
// the pool of its own name, and the pool of its protocol.
type holders struct{}

func (holders) TypeURL() string { return "holders" }

func (holders) Affected(_ *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for c := range d.Hosts() {
			if !yield(c.Key) {
				return
			}
		}
	}
}

func (holders) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	s := v.Service(host.Name(name))
	if s == nil {
		return nil, nil, nil
	}
	port := s.Service().Ports[0]
	return wrapperspb.String(fmt.Sprint(port.Protocol, port.Number)), []resource.Need{
		{TypeURL: "pools", Name: name, Kind: resource.Covered},
		{TypeURL: "pools", Name: string(port.Protocol), Kind: resource.Covered},
	}, nil
}

// pools makes resources that never change.
type pools struct{}

func (pools) TypeURL() string { return "pools" }

func (pools) Affected(_ *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range []string{"HTTP", "TCP", "a.example"} {
			if d.Whole && !yield(name) {
				return
			}
		}
	}
}

func (pools) Build(_ *mesh.View, name string) (proto.Message, []resource.Need, error) {
	return wrapperspb.String(name), nil, nil
}

// TestVersionsCoverWhatNeedsThem: the version of a pool changes with each change of a
// resource that it covers, under the same name or another, and with nothing else.
func TestVersionsCoverWhatNeedsThem(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t)
	types := []generate.ResourceType{{Name: "holders", Generator: holders{}}, {Name: "pools", Generator: pools{}}}
	m := xdstest.NewGroups(types, w.Context).Join(xdstest.Node{}.Proxy(t))
	defer m.Close()
	m.Follow()
	service := func(name, protocol, number string) string {
		document := xdstest.HTTPService(name, name+".example", "10.1.0.1")
		return strings.NewReplacer("protocol: HTTP", "protocol: "+protocol, "number: 80", "number: "+number).Replace(document)
	}
	for _, step := range []struct {
		name    string
		change  func()
		changed []string
	}{
		{"one appears", func() { w.Apply(service("a", "HTTP", "80")) }, []string{"HTTP", "a.example"}},
		{"another of the protocol", func() { w.Apply(service("b", "HTTP", "81")) }, []string{"HTTP"}},
		{"one changes", func() { w.Apply(service("a", "HTTP", "82")) }, []string{"HTTP", "a.example"}},
		{"one of another protocol", func() { w.Apply(service("c", "TCP", "80")) }, []string{"TCP"}},
		{"one leaves its pool for another", func() { w.Apply(service("b", "TCP", "81")) }, []string{"HTTP", "TCP"}},
		{"a change of none", func() { w.Apply(xdstest.Object("WorkloadEntry", "w", "{address: 10.9.0.9}")) }, nil},
		{"one goes", func() { w.Delete("serviceentry/default/a") }, []string{"HTTP", "a.example"}},
		{"all go", func() { w.Delete("serviceentry/default/b"); w.Delete("serviceentry/default/c") }, []string{"TCP"}},
	} {
		before := m.Set("pools")
		step.change()
		m.Follow()
		var changed []string
		for c := range resource.Diff(before, m.Set("pools")) {
			changed = append(changed, c.Key)
		}
		if d := cmp.Diff(step.changed, changed); d != "" {
			t.Errorf("%s: the pools that changed (-want +got):\n%s", step.name, d)
		}
		want, err := m.Walked()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, m.Versions()); d != "" {
			t.Errorf("%s (-walk +member):\n%s", step.name, d)
		}
	}
}
