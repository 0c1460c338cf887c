package cluster

import (
	"cmp"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
)

// These labels name a workload's canonical service and its revision for telemetry. The
// first that is set counts. (Istio: labels.CanonicalService.)
const (
	canonicalName, canonicalRevision = "service.istio.io/canonical-name", "service.istio.io/canonical-revision"
	appName, appVersion              = "app.kubernetes.io/name", "app.kubernetes.io/version"
	shortName, shortVersion          = "app", "version"
)

// latest is the default revision, which workloadOf leaves empty.
const latest = "latest"

// workloadOf describes an endpoint's workload for access logs and statistics:
// "name;namespace;canonical service;revision;cluster". It is empty if no name is known.
func workloadOf(e *discovery.Endpoint) string {
	name := cmp.Or(e.Labels[canonicalName], e.Labels[appName], e.Labels[shortName], e.WorkloadName)
	if name == "" {
		return ""
	}
	revision := cmp.Or(e.Labels[canonicalRevision], e.Labels[appVersion], e.Labels[shortVersion])
	if revision == latest {
		revision = ""
	}
	return strings.Join([]string{e.WorkloadName, e.Namespace, name, revision, e.Locality.Cluster}, ";")
}
