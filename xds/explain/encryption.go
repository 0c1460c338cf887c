package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
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
	}
	return "", whyPlaintext(v, o, "no endpoint has the label security.istio.io/tlsMode: istio or a serviceAccount, or a PeerAuthentication disables it")
}

// whyPlaintext says why a proxy sends plaintext through a cluster. unlabelled says it of endpoints
// where it would encrypt to others.
func whyPlaintext(v *mesh.View, o cluster.Outbound, unlabelled string) string {
	switch {
	case o.Policy().GetTls() != nil:
		return "a DestinationRule says so (tls mode DISABLE)"
	case o.Service.Service().MeshExternal:
		return "the service is outside the mesh (location MESH_EXTERNAL, the default), and no DestinationRule asks for TLS"
	case o.AutoTLS(v):
		return unlabelled
	case !v.HasCertificate():
		return "the proxy has no certificate of the mesh"
	}
	return "the mesh does not encrypt to it without a rule: by its resolution, or by enableAutoMtls"
}

// unproved says why the caller proves no identity to a sidecar, to whose port the explainer's proxy
// sends a request by a cluster, empty for none; "" if it proves one, or has none.
func (e *explainer) unproved(to *receiver, by peer.Decision, cluster, address string, r simulate.Request) string {
	v := e.view()
	switch o, ok := findCluster(v, cluster); {
	case e.from == "", r.Protocol == simulate.TLS, r.Protocol == simulate.HTTPS:
		return ""
	case workload.Mode(to.view, r.Port) == peer.Disable && by.By != nil && to.view.HasCertificate():
		return by.By.Config.Key().String() + " says DISABLE there"
	case workload.Mode(to.view, r.Port) == peer.Disable:
		return "the sidecar has no certificate of the mesh"
	case !ok:
		return "the proxy of the caller encrypts nothing to it"
	default:
		return whyPlaintext(v, o, "the endpoint "+address+" has no label security.istio.io/tlsMode: istio")
	}
}

func findCluster(v *mesh.View, name string) (cluster.Outbound, bool) {
	if name == "" {
		return cluster.Outbound{}, false
	}
	return cluster.Find(v, name)
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
		r.Unnamed = r.Identity == ""
	}
	if v.Shape().Type == discovery.Proxyless {
		r.SNI = "" // which the libraries do not send
	}
	return r
}

// identity is the name in the certificate of the proxy: what it proved, what it says of itself, or
// what its endpoints have, whose clients demand that name. It is empty if nothing tells: the
// certificate is on the machine of the proxy.
func (e *explainer) identity() string {
	domain := e.push.MeshConfig().GetTrustDomain()
	return cmp.Or(e.proxy.Identity, discovery.SPIFFE(domain, e.proxy.Namespace, e.proxy.ServiceAccount), e.account())
}

// account is the identity of the endpoints at the addresses of the proxy, empty if they have none or
// several. Loopback addresses do not count, because every machine has them.
func (e *explainer) account() string {
	var found []string
	for _, address := range e.proxy.IPAddresses {
		if ip, err := netip.ParseAddr(address); err != nil || ip.IsLoopback() {
			continue
		}
		for key, row := range e.push.Instances(address).All() {
			if _, namespace := rows.SplitKey(key); namespace != e.proxy.Namespace {
				continue
			}
			for _, one := range row.Endpoints {
				if one.ServiceAccount != "" && !slices.Contains(found, one.ServiceAccount) {
					found = append(found, one.ServiceAccount)
				}
			}
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
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
