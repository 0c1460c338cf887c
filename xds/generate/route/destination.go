package route

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// Destination resolves the destination of a route: its service, nil if there is none, and
// its port. If the destination names no port, it is the service's only one, else that of
// the listener. (Istio: GetDestinationCluster.)
func Destination(v *mesh.View, d *networking.Destination, listening int) (service *mesh.ServiceRow, port int) {
	service = v.Service(host.Name(d.GetHost()))
	if number := int(d.GetPort().GetNumber()); number != 0 {
		return service, number
	}
	if service != nil {
		if ports := service.Ports(); len(ports) == 1 {
			return service, ports[0].Number
		}
	}
	return service, listening
}
