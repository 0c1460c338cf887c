package route

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// TakesHTTP3 says whether a server is for HTTP/3 too, as the mesh has it. It must end HTTPS,
// at an address, and ask clients for no certificate: Envoy does not verify any over QUIC.
func TakesHTTP3(v *mesh.View, s *routing.Server) bool {
	return s.Kind() == routing.HTTPS && s.Spec.GetTls().GetMode() == networking.ServerTLSSettings_SIMPLE &&
		!names.IsUnix(s.Spec.GetBind()) && v.Mesh(mesh.HTTP3).HTTP3
}

// QUICListenerName is the name of the listener for HTTP/3 beside a listener of a gateway;
// false where none of its servers takes HTTP/3.
func QUICListenerName(v *mesh.View, l *routing.Listener) (string, bool) {
	takes := slices.ContainsFunc(l.Servers, func(s *routing.Server) bool { return TakesHTTP3(v, s) })
	return names.QUICListener(l.Bind, uint32(l.Port)), takes
}
