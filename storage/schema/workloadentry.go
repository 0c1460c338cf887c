package schema

import (
	"path"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/probe"
)

const unixScheme = "unix://"

func workloadEntry() *Schema {
	return definition[*networking.WorkloadEntry]{
		kind: WorkloadEntry, plural: "workloadentries", shortName: "we",
		codec:  config.Protobuf[networking.WorkloadEntry](),
		served: workloadEntryServed(),
		check:  checkWorkloadEntryObject,
	}.schema()
}

func workloadEntryServed() fields {
	return serve("address", "ports", "labels", "network", "locality", "weight", "serviceAccount")
}

// checkWorkloadEntryObject checks a WorkloadEntry that is an object: it has annotations,
// and an endpoint of a ServiceEntry has none.
func checkWorkloadEntryObject(c checker, w *networking.WorkloadEntry) {
	if _, annotation, err := health.CheckOf(c.report.object.Annotations); err != nil {
		c.report.at("metadata").at("annotations").key(annotation).fail("%s", err)
	}
	named := c.report.at("metadata").at("annotations").key(health.ProbeAnnotation)
	if p, err := probe.Of(c.report.object.Annotations); err != nil {
		named.fail("%s", err)
	} else {
		checkProbe(named, p)
	}
	for _, annotation := range []string{health.DrainedAnnotation, health.RemovedAnnotation} {
		if why, ok := c.report.object.Annotations[annotation]; ok {
			if err := health.CheckReason(why); err != nil {
				c.report.at("metadata").at("annotations").key(annotation).fail("%s", err)
			}
		}
	}
	if err := labels.Instance(c.report.object.Labels).CheckTLSMode(); err != nil {
		c.report.at("metadata").at("labels").key(labels.TLSMode).fail("%s", err)
	}
	checkWorkloadEntry(c, w)
}

func checkWorkloadEntry(c checker, w *networking.WorkloadEntry) {
	switch {
	case w.Address != "":
	case w.Network != "":
		c.at("address").notServed("is missing: gateways between networks are not served yet, so nothing can reach this workload")
	default:
		c.at("address").fail("is missing: an IP address, a host name, or unix:// and the path of a socket")
	}
	checkWorkload(c, w)
}

// socket checks the length of the path of a Unix socket.
func (c checker) socket(path string) {
	const limit = 107 // of the system
	if len(path) > limit {
		c.fail("has a path of %d bytes: %d is the limit for a Unix socket", len(path), limit)
	}
}

// unixSocket checks the address of a Unix domain socket, with its scheme.
func (c checker) unixSocket(address string) {
	socket := strings.TrimPrefix(address, unixScheme)
	switch {
	case !path.IsAbs(socket) && !strings.HasPrefix(socket, "@"):
		c.fail("must be %s and an absolute path, is %q", unixScheme, address)
	case strings.HasSuffix(socket, "/"):
		c.fail("must be a socket, %q is a directory", address)
	default:
		c.socket(socket)
	}
}

// checkWorkload checks the fields that a WorkloadEntry, an endpoint of a ServiceEntry and
// the template of a WorkloadGroup share. The template has no address.
func checkWorkload(c checker, w *networking.WorkloadEntry) {
	at := c.at("address")
	if strings.HasPrefix(w.Address, unixScheme) {
		if len(w.Ports) > 0 {
			c.at("ports").fail("a Unix socket has no ports: leave them out")
		}
		at.unixSocket(w.Address)
	} else if w.Address != "" && !isIP(w.Address) && hostName(w.Address) != nil {
		at.fail("%q is neither an IP address nor a host name", w.Address)
	}
	for _, name := range sortedKeys(w.Ports) {
		c.at("ports").key(name).dnsLabel(lower(name))
		c.at("ports").key(name).port(w.Ports[name])
	}
	c.at("labels").labels(w.Labels)
	if err := labels.Instance(w.Labels).CheckTLSMode(); err != nil {
		c.at("labels").key(labels.TLSMode).fail("%s", err)
	}
	if strings.Contains(w.Locality, "*") {
		c.at("locality").warn("%q has a wildcard, which stands for itself here: write region/zone/subzone", w.Locality)
	} else if strings.Count(w.Locality, "/") > 2 {
		c.at("locality").warn("%q has more parts than region/zone/subzone: the subzone is all that follows the zone", w.Locality)
	}
	if w.Network != "" && w.Address != "" {
		c.at("network").notServed("decides nothing but failoverPriority: gateways between networks are not served yet, and clients of other networks connect to the address itself")
	}
	if len(w.ServiceAccount) > 253 {
		c.at("serviceAccount").fail("is longer than 253 bytes")
	}
}
