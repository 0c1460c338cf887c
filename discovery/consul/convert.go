package consul

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Keys in the metadata of an instance. A tag key=value or key|value has the same effect.
const (
	metaProtocol      = "portolan-protocol"
	metaProtocolPlain = "protocol"
	// metaPort is the port of the service that the instance serves, if it differs from the
	// instance's own port.
	metaPort    = "portolan-port"
	metaZone    = "zone"
	metaSubzone = "subzone"
	// metaTLSMode says how the instance's proxy takes connections, as the label labels.TLSMode
	// does, which is no valid key of Consul's metadata. metaAccount is the service account of
	// the instance, or its whole SPIFFE identity.
	metaTLSMode = "portolan-tls-mode"
	metaAccount = "portolan-service-account"
)

// instance is one converted instance of one service. It is never modified.
type instance struct {
	id      string // within its datacentre
	service string // the name in lower case
	node    string
	// modified is the index at which the instance last changed in Consul, apart from its
	// checks.
	modified uint64
	// failing holds the checks of the instance and its node that do not pass.
	failing []failure
	// endpoint is complete but for the ports.
	endpoint discovery.Endpoint
	ports    []port
	// vip is the service's address according to this instance, empty if it gives none.
	vip string
	// away is true if the instance gets no traffic. The service still keeps the ports of the
	// instance.
	away bool
	// flaw says what is wrong with the instance. leftOut is true if it is not in the mesh for
	// that reason.
	flaw    string
	leftOut bool
}

// failure is a check that does not pass, and the index at which it changed.
type failure struct {
	key      checkKey
	status   string
	modified uint64
}

type checkKey struct{ node, id string }

// port is a port of a service, and the instance's own port for it.
type port struct {
	number, target int
	protocol       discovery.Protocol // Unsupported where none is declared
}

func (i *instance) equal(o *instance) bool {
	return i.id == o.id && i.service == o.service && i.node == o.node && i.modified == o.modified && slices.Equal(i.failing, o.failing) && i.vip == o.vip && i.away == o.away &&
		i.flaw == o.flaw && i.leftOut == o.leftOut && slices.Equal(i.ports, o.ports) && i.endpoint.Equal(&o.endpoint)
}

// inMesh says whether the mesh takes a service of the catalogue. It does not take Consul's own
// servers, nor the proxies and gateways of Consul's own mesh.
func inMesh(kind api.ServiceKind, name string) bool { return kind == "" && name != serversName }

// serversName is the service of Consul's own servers.
const serversName = "consul"

// flawOfName returns why a service with that name cannot be in the mesh, empty if it can.
func flawOfName(name string) string {
	if isLabel(strings.ToLower(name)) {
		return ""
	}
	return "the name is not a DNS label: left out"
}

// isLabel says whether a name is a DNS label in lower case.
func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
}

// instancesOf converts the entries that the mesh takes, by their ids.
func instancesOf(o *Options, entries []*api.ServiceEntry) map[string]*instance {
	out := make(map[string]*instance, len(entries))
	for _, e := range entries {
		if e != nil && e.Node != nil && e.Service != nil && inMesh(e.Service.Kind, e.Service.Service) {
			i := convert(o, e)
			out[i.id] = i
		}
	}
	return out
}

func convert(o *Options, e *api.ServiceEntry) *instance {
	s := e.Service
	all := labelsOf(s)
	if mode := all[metaTLSMode]; mode != "" {
		all[labels.TLSMode] = mode
	}
	i := &instance{
		node: e.Node.Node, modified: s.ModifyIndex,
		id: e.Node.Node + "/" + s.ID, service: strings.ToLower(s.Service), vip: s.TaggedAddresses["virtual"].Address,
		endpoint: discovery.Endpoint{
			Address: addressOf(e), Labels: all, TLSMode: cmp.Or(all[labels.TLSMode], discovery.TLSModeDisabled),
			ServiceAccount: discovery.SPIFFE(o.TrustDomain, o.Namespace, all[metaAccount]),
			Locality:       discovery.Locality{Label: localityOf(e), Cluster: o.Cluster},
			Namespace:      o.Namespace, WorkloadName: s.ID,
		},
	}
	if _, err := netip.ParseAddr(i.vip); err != nil {
		i.vip = ""
	}
	for _, c := range e.Checks {
		if c != nil && c.Status != api.HealthPassing {
			i.failing = append(i.failing, failure{checkKey{e.Node.Node, c.CheckID}, c.Status, c.ModifyIndex})
		}
	}
	i.ports, i.flaw = portsOf(s, all)
	i.endpoint.Health, i.endpoint.Weight, i.away = healthOf(o, e)
	switch _, err := netip.ParseAddr(i.endpoint.Address); {
	case flawOfName(s.Service) != "":
		i.flaw, i.leftOut = flawOfName(s.Service), true
	case err != nil:
		i.flaw, i.leftOut = "the address "+strconv.Quote(i.endpoint.Address)+" is not an IP address: left out", true
	case len(i.ports) == 0:
		i.flaw, i.leftOut = "it has no port: left out", true
	case all.CheckTLSMode() != nil:
		i.flaw, i.leftOut = metaTLSMode+": "+all.CheckTLSMode().Error()+": left out", true
	}
	return i
}

// labelsOf returns the tags and the metadata of an instance as labels; metadata wins. A tag
// key=value or key|value is a label; any other tag is a label with the value "true".
func labelsOf(s *api.AgentService) labels.Instance {
	out := make(labels.Instance, len(s.Tags)+len(s.Meta))
	for _, tag := range s.Tags {
		if at := strings.IndexAny(tag, "=|"); at < 0 && tag != "" {
			out[tag] = "true"
		}
	}
	for _, tag := range s.Tags {
		if at := strings.IndexAny(tag, "=|"); at > 0 {
			out[tag[:at]] = tag[at+1:]
		}
	}
	maps.Copy(out, s.Meta)
	if len(out) == 0 {
		return nil
	}
	return out
}

// addressOf returns the address of the instance, else of its node.
func addressOf(e *api.ServiceEntry) string {
	return cmp.Or(e.Service.Address,
		e.Service.TaggedAddresses["lan_ipv4"].Address, e.Service.TaggedAddresses["lan"].Address, e.Service.TaggedAddresses["lan_ipv6"].Address,
		e.Node.Address, e.Node.TaggedAddresses["lan_ipv4"], e.Node.TaggedAddresses["lan"])
}

// localityOf returns region/zone/subzone. The region is the datacentre unless the instance or
// its node has its own locality.
func localityOf(e *api.ServiceEntry) string {
	service, node := &api.Locality{}, &api.Locality{}
	if e.Service.Locality != nil {
		service = e.Service.Locality
	}
	if e.Node.Locality != nil {
		node = e.Node.Locality
	}
	region := cmp.Or(service.Region, node.Region, e.Node.Datacenter)
	zone := cmp.Or(service.Zone, e.Service.Meta[metaZone], node.Zone, e.Node.Meta[metaZone])
	subzone := cmp.Or(e.Service.Meta[metaSubzone], e.Node.Meta[metaSubzone])
	return strings.TrimRight(region+"/"+zone+"/"+subzone, "/")
}

// portsOf returns the ports of an instance, and what is wrong with their description.
func portsOf(s *api.AgentService, all labels.Instance) (ports []port, flaw string) {
	protocol, flaw := protocolOf(s, all)
	for _, p := range s.Ports {
		own := protocol
		if name, _, _ := strings.Cut(p.Name, "-"); own == discovery.Unsupported {
			own = discovery.ParseProtocol(name)
		}
		if p.Port > 0 {
			ports = append(ports, port{p.Port, p.Port, own})
		}
	}
	if len(ports) > 0 {
		return ports, flaw
	}
	if s.Port <= 0 {
		return nil, flaw
	}
	number := s.Port
	if text, ok := all[metaPort]; ok {
		if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 1<<16 {
			number = n
		} else {
			flaw = metaPort + " " + strconv.Quote(text) + " is not a port: its own is used"
		}
	}
	return []port{{number, s.Port, protocol}}, flaw
}

func protocolOf(s *api.AgentService, all labels.Instance) (p discovery.Protocol, flaw string) {
	if text := cmp.Or(all[metaProtocol], all[metaProtocolPlain]); text != "" {
		if p = discovery.ParseProtocol(text); p == discovery.Unsupported {
			flaw = "the protocol " + strconv.Quote(text) + " is not known: it is taken for TCP"
		}
		return p, flaw
	}
	for _, tag := range s.Tags {
		if p = discovery.ParseProtocol(tag); p != discovery.Unsupported {
			return p, ""
		}
	}
	return discovery.Unsupported, ""
}

// healthOf returns the health of an instance by the worst of its own checks and its node's.
// away is true if it gets no traffic.
func healthOf(o *Options, e *api.ServiceEntry) (health discovery.Health, weight uint32, away bool) {
	passing, warning := e.Service.Weights.Passing, e.Service.Weights.Warning
	var own api.HealthChecks
	for _, c := range e.Checks {
		if c != nil && (c.ServiceID == "" || c.ServiceID == e.Service.ID) {
			own = append(own, c)
		}
	}
	if passing <= 0 {
		passing = 1
	}
	switch own.AggregatedStatus() {
	case api.HealthMaint:
		return discovery.Unhealthy, uint32(passing), true
	case api.HealthPassing:
		return discovery.Healthy, uint32(passing), false
	case api.HealthWarning:
		if !o.WarningUnhealthy {
			return discovery.Healthy, uint32(max(1, warning)), warning <= 0
		}
	}
	return discovery.Unhealthy, uint32(passing), false
}
