package explain

import (
	"fmt"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// encryption says how the connections of a cluster are encrypted, and what is missing for that.
// Each is empty if there is nothing to say.
func (e *explainer) encryption(name string) (how, missing string) {
	o, ok := cluster.Find(e.view(), name)
	if !ok || !o.Encrypted(e.view()) {
		return "", ""
	}
	tls := o.Policy().GetTls()
	how = fmt.Sprintf("over TLS (%s) as %s", tls.GetMode(), serverNameOf(o, tls))
	if tls.GetMode() != networking.ClientTLSSettings_ISTIO_MUTUAL && tls.GetInsecureSkipVerify().GetValue() {
		how += ", to a server that is not verified"
	}
	for _, lack := range o.Lacks(e.view()) {
		missing = strings.TrimPrefix(missing+"; "+lack.String(), "; ")
	}
	return how, missing
}

// asSent returns a request as it leaves through a cluster, which may encrypt it.
func (e *explainer) asSent(cluster string, r simulate.Request) simulate.Request {
	how, _ := e.encryption(cluster)
	switch {
	case how == "":
	case r.Protocol == simulate.TCP:
		r.Protocol = simulate.TLS
	case r.Protocol == simulate.HTTP || r.Protocol == simulate.HTTP2 || r.Protocol == simulate.GRPC:
		r.Protocol = simulate.HTTPS
	}
	return r
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
