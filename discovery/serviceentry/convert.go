package serviceentry

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

const (
	// Label values cannot contain slashes, so users may write dots instead.
	localityLabel = "istio-locality"
	// unixPrefix begins the address of a unix socket.
	unixPrefix = "unix://"
)

// converter holds the inputs of the conversion besides the object.
type converter struct {
	cluster         string
	trustDomain     string
	defaultExportTo []string
}

// services returns the services of a ServiceEntry by host: one for each of its addresses, or
// one without an address. It returns none if proxies cannot serve the resolution.
func (c converter) services(object *config.Config, spec *networking.ServiceEntry) map[host.Name][]*discovery.Service {
	resolution, ok := resolutionOf(spec)
	if !ok {
		return nil
	}
	distribution, _ := labels.ParseDistribution(object.Annotations[labels.DistributionAnnotation]) // the schema warns of others
	template := discovery.Service{
		Ports:           ports(spec, resolution),
		Resolution:      resolution,
		MeshExternal:    spec.GetLocation() == networking.ServiceEntry_MESH_EXTERNAL,
		ServiceAccounts: sortedSet(spec.GetSubjectAltNames()),
		CreationTime:    object.CreationTimestamp,
		Attributes: discovery.Attributes{
			Provider: discovery.External, Name: object.Name, Namespace: object.Namespace,
			Labels: object.Labels, LabelSelectors: selectorOf(spec),
			ExportTo: discovery.ParseVisibility(spec.GetExportTo(), object.Namespace, c.defaultExportTo), Distribution: distribution,
		},
	}
	vips := addresses(spec)
	out := make(map[host.Name][]*discovery.Service, len(spec.GetHosts()))
	for _, name := range sortedSet(lowerCase(spec.GetHosts())) {
		for _, address := range vips {
			service := template
			service.Hostname, service.Address = host.Name(name), address
			out[service.Hostname] = append(out[service.Hostname], &service)
		}
	}
	return out
}

// lowerCase makes host names comparable: DNS ignores case, and rules and routes match lower
// case.
func lowerCase(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strings.ToLower(name)
	}
	return out
}

func resolutionOf(spec *networking.ServiceEntry) (r discovery.Resolution, served bool) {
	switch spec.GetResolution() {
	case networking.ServiceEntry_STATIC:
		return discovery.ClientSideLB, true
	case networking.ServiceEntry_DNS:
		return discovery.DNSLB, true
	case networking.ServiceEntry_DNS_ROUND_ROBIN:
		return discovery.DNSRoundRobinLB, true
	case networking.ServiceEntry_NONE:
		return discovery.Passthrough, true
	case networking.ServiceEntry_DYNAMIC_DNS:
		return discovery.DynamicDNS, true
	}
	return 0, false
}

// ports returns the ports of a ServiceEntry on which a proxy can tell the destination.
func ports(spec *networking.ServiceEntry, resolution discovery.Resolution) []discovery.Port {
	out := make([]discovery.Port, 0, len(spec.GetPorts()))
	for _, p := range spec.GetPorts() {
		port := discovery.Port{Name: p.GetName(), Number: int(p.GetNumber()), Protocol: protocolOf(p)}
		if resolution == discovery.DynamicDNS && !port.Protocol.IsHTTP() && !port.Protocol.IsTLS() {
			continue
		}
		if resolution == discovery.Passthrough {
			port.TargetPort = int(p.GetTargetPort())
		}
		out = append(out, port)
	}
	return out
}

// A proxy treats HTTP_PROXY as HTTP: clients name the host in each request. (Istio:
// protocol.IsHTTP.)
func protocolOf(p *networking.ServicePort) discovery.Protocol {
	if protocol := discovery.ParseProtocol(p.GetProtocol()); protocol != discovery.HTTPProxy {
		return protocol
	}
	return discovery.HTTP
}

// addresses returns the distinct addresses of a ServiceEntry, in order: IPs, and CIDRs of more
// than one address.
func addresses(spec *networking.ServiceEntry) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range spec.GetAddresses() {
		if prefix, err := netip.ParsePrefix(s); err == nil {
			if prefix.IsSingleIP() {
				s = prefix.Addr().String()
			}
		} else if _, err := netip.ParseAddr(s); err != nil {
			continue
		}
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	if len(spec.GetAddresses()) == 0 {
		return []string{discovery.UnspecifiedIP}
	}
	return out
}

// selectorOf returns the labels by which a ServiceEntry selects workloads, nil if it selects
// none. The empty selector selects all of the namespace.
func selectorOf(spec *networking.ServiceEntry) labels.Instance {
	if spec.GetWorkloadSelector() == nil || spec.GetResolution() == networking.ServiceEntry_DYNAMIC_DNS {
		return nil
	}
	out := labels.Instance{}
	maps.Copy(out, spec.GetWorkloadSelector().GetLabels())
	return out
}

// LabelsOf returns the labels of a workload: those of its spec, overridden by the labels of
// its WorkloadEntry. The result may be the spec's own map, so do not modify it.
func LabelsOf(meta *config.Meta, spec *networking.WorkloadEntry) labels.Instance {
	if len(meta.Labels) == 0 {
		return spec.GetLabels()
	}
	all := make(labels.Instance, len(spec.GetLabels())+len(meta.Labels))
	maps.Copy(all, spec.GetLabels())
	maps.Copy(all, meta.Labels)
	return all
}

// workload converts a WorkloadEntry, or an endpoint of a ServiceEntry, which
// has no metadata of its own.
func (c converter) workload(meta *config.Meta, spec *networking.WorkloadEntry) *discovery.WorkloadInstance {
	all := LabelsOf(meta, spec)
	out := &discovery.WorkloadInstance{
		Name: meta.Name, Namespace: meta.Namespace, Provider: discovery.External,
		PortMap: spec.GetPorts(),
		Endpoint: discovery.Endpoint{
			Address: spec.GetAddress(), Labels: all,
			ServiceAccount: discovery.SPIFFE(c.trustDomain, meta.Namespace, spec.GetServiceAccount()),
			Network:        spec.GetNetwork(),
			Locality:       discovery.Locality{Label: locality(spec, all), Cluster: c.cluster},
			Weight:         max(1, spec.GetWeight()),
			TLSMode:        tlsMode(spec, all),
			Check:          checkOf(meta),
			Namespace:      meta.Namespace, WorkloadName: meta.Name,
		},
	}
	if socket, ok := strings.CutPrefix(spec.GetAddress(), unixPrefix); ok && isSocket(socket) {
		out.Endpoint.Address, out.DNSServiceEntryOnly = socket, true
	} else if _, err := netip.ParseAddr(spec.GetAddress()); err != nil {
		out.DNSServiceEntryOnly = true
	}
	return out
}

// checkOf returns the health check in the annotations of a WorkloadEntry.
func checkOf(meta *config.Meta) health.Check {
	check, _, _ := health.CheckOf(meta.Annotations) // validation refuses bad ones
	return check
}

// isSocket says whether an endpoint's address is a unix socket: a path, or a
// name in the abstract namespace.
func isSocket(address string) bool {
	return strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@")
}

func locality(spec *networking.WorkloadEntry, all labels.Instance) string {
	if spec.GetLocality() != "" {
		return spec.GetLocality()
	}
	label := all[localityLabel]
	if strings.Contains(label, "/") {
		return label
	}
	return strings.ReplaceAll(label, ".", "/")
}

func tlsMode(spec *networking.WorkloadEntry, all labels.Instance) string {
	switch mode := all[labels.TLSMode]; {
	case mode != "":
		return mode
	case spec.GetServiceAccount() != "":
		return discovery.TLSModeIstio
	}
	return discovery.TLSModeDisabled
}

// inline returns the endpoints that a ServiceEntry itself lists. A DNS entry without any uses
// its hosts instead, see hostEndpoints.
func (c converter) inline(object *config.Config, spec *networking.ServiceEntry) []*discovery.Endpoint {
	var out []*discovery.Endpoint
	for i, e := range spec.GetEndpoints() {
		meta := config.Meta{Name: object.Name + "-" + strconv.Itoa(i), Namespace: object.Namespace}
		out = append(out, endpoints(spec, c.workload(&meta, e))...)
	}
	return out
}

// endpoints returns the endpoints of a workload for the ports of a ServiceEntry that selects
// or lists it. It returns none if proxies could not connect to the address: a host name that
// they do not resolve, or a unix socket in a DNS service.
func endpoints(spec *networking.ServiceEntry, w *discovery.WorkloadInstance) []*discovery.Endpoint {
	resolution, served := resolutionOf(spec)
	unix := isSocket(w.Endpoint.Address)
	switch {
	case !served, resolution == discovery.DynamicDNS, w.Endpoint.Address == "":
		return nil
	case resolution.IsDNS() && unix, !resolution.IsDNS() && !unix && w.DNSServiceEntryOnly:
		return nil
	}
	out := make([]*discovery.Endpoint, 0, len(spec.GetPorts()))
	for _, p := range spec.GetPorts() {
		e := w.Endpoint
		e.ServicePortName, e.ServicePort = p.GetName(), int(p.GetNumber())
		if !unix {
			e.Port = targetPort(p, w.PortMap)
		}
		out = append(out, &e)
	}
	return out
}

// targetPort returns the port on which a workload serves a service port: the workload's own
// setting, else the ServiceEntry's, else the same number.
func targetPort(p *networking.ServicePort, ports map[string]uint32) int {
	if own := ports[p.GetName()]; own > 0 {
		return int(own)
	}
	if p.GetTargetPort() > 0 {
		return int(p.GetTargetPort())
	}
	return int(p.GetNumber())
}

// hostEndpoints returns a host as its own endpoint. A wildcard host cannot be resolved, so it
// has none.
func (c converter) hostEndpoints(object *config.Config, spec *networking.ServiceEntry, hostname host.Name) []*discovery.Endpoint {
	if hostname.IsWildcard() {
		return nil
	}
	meta := config.Meta{Name: object.Name, Namespace: object.Namespace}
	return endpoints(spec, c.workload(&meta, &networking.WorkloadEntry{Address: string(hostname)}))
}

// firstPerPort keeps the first endpoint in use of each port, and those out of use: a proxy that resolves round robin uses
// no other.
func firstPerPort(in []*discovery.Endpoint) []*discovery.Endpoint {
	seen := map[discovery.Port]bool{}
	return slices.DeleteFunc(slices.Clone(in), func(e *discovery.Endpoint) bool {
		port := discovery.Port{Name: e.ServicePortName, Number: e.ServicePort}
		again := seen[port]
		seen[port] = again || e.Health != discovery.OutOfUse
		return again && e.Health != discovery.OutOfUse
	})
}

func sortedSet(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}
