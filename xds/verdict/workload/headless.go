package workload

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// headlessEntry judges the headless services of a ServiceEntry.
func (j *judge) headlessEntry(object *config.Config, spec *networking.ServiceEntry) {
	for i, h := range spec.GetHosts() {
		if s := j.serviceIn(host.Name(strings.ToLower(h)), object.Namespace); s != nil && entryOf(s) == object.Key() {
			j.headless(verdict.At("spec.hosts", i), s)
		}
	}
}

// headless warns if a workload of a headless service is one of an older headless service too, on the
// same port: sidecars tell the two apart by nothing. It looks at the first workloads, and at what
// proxies of the service's own namespace see.
func (j *judge) headless(field string, s *mesh.ServiceRow) {
	if !s.Headless() {
		return
	}
	v, looked := j.View(s.Namespace), 0
	for port, e := range service.Sockets(s, v.Endpoints(s).Workloads()) {
		if looked++; looked > verdict.MaxLooked {
			return
		}
		all := v.HeadlessAt(v.Egress()[0], service.AddressKey(e.Address), port)
		if len(all) < 2 || all[0] == s {
			continue
		}
		j.Add(verdict.Verdict{
			Code: verdict.HeadlessShared, Field: field, Other: entryOf(all[0]),
			Message: fmt.Sprintf("%s is a workload of %s too, which is older and headless as well: what sidecars that capture traffic send there is of %s", net.JoinHostPort(e.Address, strconv.Itoa(port)), all[0].Hostname, all[0].Hostname),
			Remedy:  "give the services other ports, or select other workloads",
		})
		return
	}
}
