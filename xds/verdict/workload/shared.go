package workload

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// sharedSockets warns if two connected sidecars at an address capture no traffic and bind the same
// ports. Envoy binds with SO_REUSEPORT, so the kernel gives each connection to one of them.
func (j *judge) sharedSockets(field, address string) {
	var bound []*status.Proxy
	for p := range j.Known(verdict.AddressRow, address).Values() {
		if discovery.ProxyType(p.Type) == discovery.Sidecar && p.Replica != "" && p.Interception == string(discovery.InterceptionNone) {
			bound = append(bound, p)
		}
	}
	if len(bound) < 2 {
		return
	}
	by := map[string]*status.Proxy{}
	for _, p := range bound {
		for _, socket := range j.socketsOf(p) {
			if other := by[socket]; other != nil && other != p {
				j.Add(verdict.Verdict{
					Code: verdict.SocketShared, Field: field,
					Message: fmt.Sprintf("%s has two sidecars, %s and %s, that capture no traffic and both bind %s: each connection goes to either of them", address, nameOf(other), nameOf(p), socket),
					Remedy:  "give each a Sidecar with a bind or ports of its own, or a network of its own",
				})
				return
			}
			by[socket] = p
		}
	}
}

// socketsOf returns what a sidecar that captures no traffic surely binds. What a restricted egress
// listener without a port binds follows from the services that it imports, and is left out.
func (j *judge) socketsOf(p *status.Proxy) (out []string) {
	const loopback = "127.0.0.1"
	j.Read(verdict.ObjectsRow, config.NamespacePath(schema.Sidecar, p.Namespace)) // they decide the class
	for _, address := range p.Addresses {
		j.ReadMesh(mesh.InstancesKey(address)) // and so do these
	}
	view := j.ViewOf(j.Mesh().ClassOf(verdict.ProxyOf(p)))
	for _, in := range view.Ingress() {
		if bind := cmp.Or(in.GetBind(), p.Addresses[0]); !strings.HasPrefix(bind, "unix:") {
			out = append(out, net.JoinHostPort(bind, strconv.Itoa(int(in.GetPort().GetNumber()))))
		}
	}
	for _, l := range view.Egress() {
		switch {
		case l.Socket != "":
		case l.Port > 0:
			out = append(out, net.JoinHostPort(cmp.Or(l.Bind, loopback), strconv.Itoa(l.Port)))
		case !view.RestrictsEgress():
			out = append(out, loopback+" at the ports of services")
		}
	}
	return out
}
