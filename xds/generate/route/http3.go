package route

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// TakesHTTP3 says whether a server also serves HTTP/3. The mesh must enable it, and the
// server must terminate HTTPS at an IP address without client certificates: Envoy does
// not verify these over QUIC.
// https://github.com/envoyproxy/envoy/issues/23809
func TakesHTTP3(v *mesh.View, s *routing.Server) bool {
	return s.Kind() == routing.HTTPS && s.Spec.GetTls().GetMode() == networking.ServerTLSSettings_SIMPLE &&
		!names.IsUnix(s.Spec.GetBind()) && v.Mesh(mesh.HTTP3).HTTP3
}

// QUICListenerName returns the name of the HTTP/3 listener that goes with a listener of a
// gateway; false if none of its servers serves HTTP/3.
func QUICListenerName(v *mesh.View, l *routing.Listener) (string, bool) {
	takes := slices.ContainsFunc(l.Servers, func(s *routing.Server) bool { return TakesHTTP3(v, s) })
	return names.QUICListener(l.Bind, uint32(l.Port)), takes
}
