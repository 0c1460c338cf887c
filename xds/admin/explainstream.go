package admin

import (
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// isStream says whether the proxy passes bytes on, and sees no requests.
func isStream(r simulate.Request) bool {
	return r.Protocol == simulate.TCP || r.Protocol == simulate.TLS
}

// streamRoute describes the tcp or tls route of a connection, nil where no VirtualService
// has one.
func (e *explainer) streamRoute(request simulate.Request, result simulate.Result) *ExplainedRoute {
	key, ok := xds.KeyOfPath(result.Config())
	if !ok || key.Kind != schema.VirtualService {
		return nil
	}
	out := &ExplainedRoute{Object: key.String()}
	if vs := e.context.VirtualService(key.Path()); vs != nil {
		egress, _ := route.ListenerOf(e.view(), request.Port)
		out.Field, _ = listener.FieldOf(e.view(), egress, request.Port, vs, result.Chain)
	}
	return out
}
