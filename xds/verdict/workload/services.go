package workload

import (
	"fmt"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// takeMutualTLS is how endpoints of a registry without objects say that they take mutual TLS, and
// that they do not.
var takeMutualTLS = map[discovery.Provider][2]string{
	discovery.Consul:     {"the metadata portolan-tls-mode: istio and portolan-service-account", "the metadata portolan-tls-mode: disabled"},
	discovery.Kubernetes: {"the label security.istio.io/tlsMode: istio to the pod", "the label security.istio.io/tlsMode: disabled"},
	discovery.File:       {"the labels security.istio.io/tlsMode: istio and portolan_service_account", "the label security.istio.io/tlsMode: disabled"},
}

// OfRegistry says whether the endpoints of a shard have no object that verdicts could be on.
func OfRegistry(shard discovery.ShardKey) bool {
	_, without := takeMutualTLS[shard.Provider]
	return without
}

// Service judges the endpoints of a service that have no object: what they say of their
// sidecars, and whether another headless service has them. since has the minute from which on an
// address said that it takes mutual TLS.
func Service(j *verdict.Judge, row *mesh.ServiceRow, since pmap.Map[int64]) {
	(&judge{j}).service(row, since)
}

func (j *judge) service(row *mesh.ServiceRow, since pmap.Map[int64]) {
	if entryOf(row) == (config.Key{}) { // a ServiceEntry has its own verdict
		j.headless("", row)
	}
	unlabelled, missing := map[discovery.Provider]*verdict.Names{}, map[discovery.Provider]*verdict.Names{}
	judged := map[string]bool{} // an address has an endpoint for each port
	for shard, e := range j.Mesh().EndpointsOf(row).ByShard() {
		if !OfRegistry(shard) || judged[e.Address] {
			continue
		}
		judged[e.Address] = true
		takes := e.TLSMode == discovery.TLSModeIstio
		connected, known := j.sidecarsOf(e.Address, takes)
		switch from, dated := since.Get(e.Address); {
		case !takes && e.Labels[labels.TLSMode] == "" && connected != "":
			count(unlabelled, shard.Provider, e.Address+" ("+connected+")")
		case takes && !known && dated && j.Facts().Minute-from >= verdict.QuietAfter:
			count(missing, shard.Provider, e.Address)
		}
	}
	for provider, c := range unlabelled {
		j.Add(verdict.Verdict{
			Code:    verdict.SidecarUnlabelled,
			Message: fmt.Sprintf("%s behind a sidecar with a certificate of the mesh, and %s does not say so: %s. Clients send plaintext", counted(c.Count(), "endpoint"), provider, c.First()),
			Remedy:  fmt.Sprintf("add %s; or %s, to keep plaintext", takeMutualTLS[provider][0], takeMutualTLS[provider][1]),
		})
	}
	for provider, c := range missing {
		j.Add(verdict.Verdict{
			Code:    verdict.SidecarMissing,
			Message: fmt.Sprintf("%s said by %s to take mutual TLS, and for an hour no sidecar with a certificate of the mesh was known there: %s. What clients with a certificate send is refused", counted(c.Count(), "endpoint"), provider, c.First()),
			Remedy:  fmt.Sprintf("start the sidecars, or set %s", takeMutualTLS[provider][1]),
		})
	}
}

func count(of map[discovery.Provider]*verdict.Names, provider discovery.Provider, name string) {
	if of[provider] == nil {
		of[provider] = &verdict.Names{}
	}
	of[provider].Add(name)
}
