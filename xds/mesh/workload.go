package mesh

import (
	"net/netip"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// Queries for one workload. Only generators of inbound resources use them: their
// resources belong to the workload alone.

// workload is the one of a View. It keeps answers that several of its resources ask for.
type workload struct {
	*discovery.Proxy
	push *PushContext

	at       *discovery.Place               // nil before it is asked for
	selected map[Table]*selectedForWorkload // by the table of the policies
}

// place returns its locality, and its labels as selectors see them.
func (w *workload) place() discovery.Place {
	if w.at == nil {
		at := w.push.placeOf(w.Proxy)
		w.at = &at
	}
	return *w.at
}

// InboundService is a service that the workload serves.
type InboundService struct {
	Service *ServiceRow
	// Endpoints are the service's endpoints at the workload's addresses, in the order of
	// the registries. If the workload has a proved identity, only endpoints that it may
	// serve are here.
	Endpoints []*discovery.Endpoint
}

// OfWorkload says whether the view is that of one workload. It does not record: such resources are
// never those of a class.
func (v *View) OfWorkload() bool { return v.workload != nil }

// IPs returns the addresses of the workload, none in the view of a class.
func (v *View) IPs() []string { return strings.Fields(v.ask(Self, selfIPs, "").(string)) }

func (v *View) ips() string {
	if v.workload == nil {
		return ""
	}
	return strings.Join(v.workload.IPAddresses, " ")
}

// ServerListeners are the names of the listeners that a gRPC server has asked for, in order.
func (v *View) ServerListeners() []string {
	names := v.ask(Self, selfListeners, "").(string)
	if names == "" {
		return nil
	}
	return strings.Split(names, class.Separator)
}

// InRegion says whether a locality is in the workload's region. It is false in the view
// of a class.
func (v *View) InRegion(locality string) bool {
	return v.workload != nil && discovery.Place{Locality: locality}.Region() == v.ask(Self, selfRegion, "").(string)
}

func (v *View) region() string {
	if v.workload == nil {
		return ""
	}
	return v.workload.place().Region()
}

// identity returns the proved identity of the workload; empty for none.
func (v *View) identity() string {
	if v.workload == nil {
		return ""
	}
	return v.workload.Identity
}

// InstanceIP is the workload's first address of an IP family, empty for none.
func (v *View) InstanceIP(v6 bool) string {
	for _, ip := range v.IPs() {
		if a, err := netip.ParseAddr(ip); err == nil && a.Unmap().Is4() != v6 {
			return ip
		}
	}
	return ""
}

// InboundServices returns the services that have endpoints at the workload's addresses,
// whether it sees them or not. They are ordered by address, then by host and namespace.
func (v *View) InboundServices() []InboundService {
	self := discovery.Proxy{Identity: v.ask(Self, selfServes, "").(string)}
	var out []InboundService
	at := map[string]int{} // index in out, by the key of the service
	for _, ip := range v.IPs() {
		for key, row := range v.ask(Instances, service.AddressKey(ip), "").(InstancesAt).All() {
			for _, e := range row.Endpoints {
				if !self.Serves(e) {
					continue
				}
				i, known := at[key]
				if !known {
					s := v.ask(Services, key, "").(*ServiceRow)
					if s == nil {
						break
					}
					i, at[key] = len(out), len(out)
					out = append(out, InboundService{Service: s})
				}
				out[i].Endpoints = append(out[i].Endpoints, e)
			}
		}
	}
	return out
}
