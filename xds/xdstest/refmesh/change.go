package refmesh

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Change is objects to write, or to delete, and how to see that it arrived.
type Change struct {
	Objects []*config.Config
	Delete  bool
	// Mark are bytes that resources which carry the change have, and no others.
	// Where objects are deleted it is what the removed names have.
	Mark []byte
}

// ChangeEndpoint gives the last endpoint of a service another address, for each n
// another one. No proxy has that address.
func (m Mesh) ChangeEndpoint(i, n int) Change {
	object := m.ServiceEntry(i)
	moved := address(224, n) // beyond what the proxies have
	object.Spec.(*networking.ServiceEntry).Endpoints[Endpoints-1].Address = moved
	return Change{Objects: []*config.Config{object}, Mark: text(moved)}
}

// ChangeRoutes changes a header that a VirtualService matches, or its delegate, for each
// n to another value.
func (m Mesh) ChangeRoutes(i, n int) Change {
	mark := fmt.Sprintf("tenant-of-change-%d", n)
	if m.Delegated {
		return Change{Objects: []*config.Config{m.Delegate(i, mark)}, Mark: text(mark)}
	}
	return Change{Objects: []*config.Config{m.VirtualService(i, mark)}, Mark: text(mark)}
}

// ChangePattern changes the pattern of a service, for each n to another one.
func (m Mesh) ChangePattern(i, n int) Change {
	mark := fmt.Sprintf("of-change-%d", n)
	return Change{Objects: []*config.Config{m.Pattern(i, mark)}, Mark: []byte(mark)}
}

// ChangeRule changes how many connections a DestinationRule allows, for each n to
// another number.
func (m Mesh) ChangeRule(i, n int) Change {
	const large = 1 << 28 // five bytes on the wire, as no other number of the mesh
	value := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), large+uint64(n))
	return Change{Objects: []*config.Config{m.DestinationRule(i, large+n)}, Mark: value}
}

// ChangeGateway changes the host of a Gateway, for each n to another one.
func (m Mesh) ChangeGateway(n int) Change {
	mark := fmt.Sprintf("www-%d.mesh.test", n)
	object := &config.Config{Meta: meta(schema.Gateway, RootNamespace, "edge"), Spec: &networking.Gateway{
		Selector: map[string]string{"app": "edge"},
		Servers:  []*networking.Server{{Port: &networking.Port{Number: HTTPPort, Name: "http", Protocol: "HTTP"}, Hosts: []string{mark}}},
	}}
	return Change{Objects: []*config.Config{object}}
}

// ChangeSidecar changes which services the first namespace imports: for each n other ones
// beside Target.
func (m Mesh) ChangeSidecar(n int) Change {
	const imports = 10
	hosts := []string{"*/" + Host(Target)}
	for i := range imports {
		hosts = append(hosts, "*/"+Host((Target+1+n*imports+i)%m.Services))
	}
	return Change{Objects: []*config.Config{sidecar(Namespace(0), hosts)}}
}

// NewService adds a service that the mesh does not have, for each n another one.
func (m Mesh) NewService(n int) Change {
	i := m.Services + n
	return Change{Objects: []*config.Config{m.ServiceEntry(i)}, Mark: []byte(Host(i))}
}

// DeleteService takes away what NewService added.
func (m Mesh) DeleteService(n int) Change {
	out := m.NewService(n)
	out.Delete = true
	return out
}

// text is how a string is on the wire: its length is before it, so that 10.0.0.1
// is not found in 10.0.0.10.
func text(s string) []byte { return protowire.AppendString(nil, s) }
