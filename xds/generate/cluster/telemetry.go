package cluster

import (
	"cmp"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
)

// The labels by which telemetry knows what a workload runs, and in which version. The
// first that is set counts. (Istio: labels.CanonicalService.)
const (
	canonicalName, canonicalRevision = "service.istio.io/canonical-name", "service.istio.io/canonical-revision"
	appName, appVersion              = "app.kubernetes.io/name", "app.kubernetes.io/version"
	shortName, shortVersion          = "app", "version"
)

// latest is the revision of a workload that says none.
const latest = "latest"

// workloadOf tells access logs and statistics which workload an endpoint is:
// "name;namespace;canonical service;revision;cluster". It is empty where nothing of
// that is known.
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
