package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// encryption says how the connections of a cluster are encrypted, and what is missing for that.
// Each is empty if there is nothing to say.
func (e *explainer) encryption(name string) (how, missing string) {
	v := e.view()
	o, ok := cluster.Find(v, name)
	switch {
	case !ok:
		return "", ""
	case !o.Encrypted(v):
		return e.automatic(o), ""
	}
	tls := o.TLS(v)
	how = fmt.Sprintf("over TLS (%s) as %s", tls.GetMode(), serverNameOf(o, tls))
	if tls.GetMode() != networking.ClientTLSSettings_ISTIO_MUTUAL && tls.GetInsecureSkipVerify().GetValue() {
		how += ", to a server that is not verified"
	}
	how += toPeers(o.PeerNames(v))
	for _, lack := range o.Lacks(v) {
		missing = strings.TrimPrefix(missing+"; "+lack.String(), "; ")
	}
	return how, missing
}

// automatic says to which endpoints of a cluster connections are encrypted without a rule; empty
// for none.
func (e *explainer) automatic(o cluster.Outbound) string {
	v := e.view()
	mutual, all := len(o.MutualEndpoints(v)), 0
	for _, l := range o.Selection(v).Localities(v.EndpointsOf(o.Service)) {
		all += len(l.Endpoints)
	}
	if mutual == 0 {
		return ""
	}
	how := "over mutual TLS of the mesh as " + o.ServerName() + toPeers(o.PeerNames(v))
	if mutual < all {
		how += fmt.Sprintf(", for %d of %d endpoints: the others have no label security.istio.io/tlsMode: istio, or a PeerAuthentication disables it", mutual, all)
	}
	return how
}

// unencrypted says why the proxy does not encrypt the connections of a cluster, or how the client
// does that itself.
func (e *explainer) unencrypted(name string, r simulate.Request, result simulate.Result) (how, why string) {
	v := e.view()
	o, ok := cluster.Find(v, name)
	switch {
	case r.Protocol == simulate.TLS && result.Chain.GetTransportSocket() == nil:
		return "by the client, whose TLS is passed on", ""
	case !ok:
		return "", "it is passed on as it comes"
	case o.Policy().GetTls() != nil:
		return "", "a DestinationRule says so (tls mode DISABLE)"
	case o.Service.Service().MeshExternal:
		return "", "the service is outside the mesh (location MESH_EXTERNAL, the default), and no DestinationRule asks for TLS"
	case o.AutoTLS(v):
		return "", "no endpoint has the label security.istio.io/tlsMode: istio or a serviceAccount, or a PeerAuthentication disables it"
	case !v.HasCertificate():
		return "", "the proxy has no certificate of the mesh"
	}
	return "", "the mesh does not encrypt to it without a rule: by its resolution, or by enableAutoMtls"
}

// toPeers says which names a server must show; empty for any.
func toPeers(names []string) string {
	if len(names) == 0 {
		return ""
	}
	const shown = 3
	if more := len(names) - shown; more > 0 {
		names = append(slices.Clone(names[:shown]), fmt.Sprintf("%d more", more))
	}
	return ", to a server of " + strings.Join(names, " or ")
}

// asSent returns a request as it leaves through a cluster for an endpoint, which may encrypt it.
func (e *explainer) asSent(name, endpoint string, r simulate.Request) simulate.Request {
	v := e.view()
	o, ok := cluster.Find(v, name)
	if !ok || !o.Encrypted(v) && !o.MutualEndpoints(v)[endpoint] {
		return r
	}
	switch r.Protocol {
	case simulate.TCP:
		r.Protocol = simulate.TLS
	case simulate.HTTP, simulate.HTTP2, simulate.GRPC:
		r.Protocol = simulate.HTTPS
	}
	if o.TLS(v).GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL {
		r.ALPN, r.SNI, r.Identity = o.Offers(v), o.ServerName(), e.identity()
	}
	if v.Shape().Type == discovery.Proxyless {
		r.SNI = "" // which the libraries do not send
	}
	return r
}

// identity is the name in the certificate of the proxy: what it proved, or what it says of itself.
func (e *explainer) identity() string {
	domain := e.push.Inputs().Mesh.GetTrustDomain()
	return cmp.Or(e.proxy.Identity, discovery.SPIFFE(domain, e.proxy.Namespace, e.proxy.ServiceAccount))
}

// serverNameOf returns the server name (SNI) that connections of a cluster send.
func serverNameOf(o cluster.Outbound, tls *networking.ClientTLSSettings) string {
	switch {
	case tls.GetSni() != "":
		return tls.GetSni()
	case tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL:
		return o.ServerName()
	case o.Port.Protocol.IsHTTP():
		return "the host of the request"
	}
	return "nobody in particular"
}
