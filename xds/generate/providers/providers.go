// Package providers finds the clusters of the services that providers of the mesh configuration name.
package providers

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
)

// Service is how a provider names a service: [namespace/]host, and a port.
type Service interface {
	GetService() string
	GetPort() uint32
}

// Host returns the host of a service.
func Host(s Service) string {
	_, host := split(s)
	return host
}

func split(s Service) (namespace, host string) {
	if namespace, host, ok := strings.Cut(s.GetService(), "/"); ok {
		return namespace, host
	}
	return "", s.GetService()
}

// Cluster returns the cluster of a service; false if the proxy does not see the service and its port.
func Cluster(v *mesh.View, s Service) (string, bool) {
	namespace, name := split(s)
	row := v.Service(host.Name(name))
	if row == nil || namespace != "" && row.Namespace != namespace {
		return "", false
	}
	port, ok := row.Port(int(s.GetPort()))
	if !ok || !port.Protocol.IsServed() {
		return "", false
	}
	return names.Cluster(names.Outbound, s.GetPort(), "", name), true
}
