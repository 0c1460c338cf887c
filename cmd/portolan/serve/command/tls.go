package command

import (
	"net"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/xds/admission"
)

// tlsFlags holds the flags of how other machines are served.
type tlsFlags struct {
	cert, key, clientCA string
	secureXDS           string
	insecureXDS         bool
	trustLoopback       bool
	xdsSocket           string
	names               []string
	identityStreams     int
}

func (o *tlsFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.secureXDS, "secure-xds-address", "", "where proxies of other machines connect (gRPC over TLS), each with a certificate of the mesh or a bearer token; port 0 picks a free one (default none)")
	f.StringVar(&o.cert, "tls-cert", "", "file with the certificate of the server and its chain, for --secure-xds-address and for --api-address; it may be replaced at any time (default a certificate of the mesh's authority)")
	f.StringVar(&o.key, "tls-key", "", "file with the key of --tls-cert")
	f.StringVar(&o.clientCA, "client-ca", "", "file with authorities that sign the certificates of proxies and users, beside that of the mesh; it may be replaced at any time")
	f.StringSliceVar(&o.names, "api-name", nil, "name or address by which clients call the server, beside its own and those in --tls-cert; may be repeated")
	f.BoolVar(&o.insecureXDS, "insecure-xds-anywhere", false, "let --xds-address be reached from other machines, without TLS: whoever reaches it reads the configuration of every proxy")
	f.StringVar(&o.xdsSocket, "xds-socket", "", "unix socket on which proxies of this machine connect too, those of the user who runs the server and of root; they get secrets without a certificate (default none)")
	f.BoolVar(&o.trustLoopback, "trust-loopback-proxies", false, "give secrets to proxies of this machine that prove nothing, and believe the labels of its gateways, even when there are users: every process here can be such a proxy")
}

// registerLimits adds those of the flags that are limits.
func (o *tlsFlags) registerLimits(f *pflag.FlagSet) {
	f.IntVar(&o.identityStreams, "max-streams-per-identity", admission.DefaultMaxIdentityStreams, "how many streams of xDS the proxies of one service account may have, which connect to --secure-xds-address")
}

// validate reports what is wrong with the flags, and with the two addresses in combination
// with them.
func (o *tlsFlags) validate(apiAddress, xdsAddress string, add addFault) {
	if (o.cert == "") != (o.key == "") {
		add("tls-cert", "name both --tls-cert and --tls-key, or neither")
	}
	splitHost("api-address", apiAddress, add)
	if host, ok := splitHost("xds-address", xdsAddress, add); ok && !o.insecureXDS && !isLoopback(host) {
		add("xds-address", "%q is reached from other machines, and is served without TLS: use 127.0.0.1, [::1] or localhost here and --secure-xds-address beside it, "+
			"or --insecure-xds-anywhere to let everybody read the configuration of every proxy", xdsAddress)
	}
	if o.secureXDS != "" {
		splitHost("secure-xds-address", o.secureXDS, add)
	}
	for _, name := range o.names {
		if _, err := netip.ParseAddr(name); err != nil && !isHostName(name) {
			add("api-name", "%q is neither a host name nor an address", name)
		}
	}
	if o.identityStreams < 1 {
		add("max-streams-per-identity", "%d is less than 1", o.identityStreams)
	}
}

func splitHost(flag, address string, add addFault) (host string, ok bool) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		add(flag, "%q is not HOST:PORT", address)
	}
	return host, err == nil
}

// isLoopback says whether a host means only this machine.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// isHostName says whether a text could be the name of a host.
func isHostName(name string) bool {
	for _, r := range name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '.') {
			return false
		}
	}
	return name != "" && len(name) <= 253
}

// apply requires valid flags.
func (o *tlsFlags) apply(to *serve.Options) {
	to.TLS = serve.TLS{Cert: o.cert, Key: o.key, ClientCA: o.clientCA, SecureXDSAddress: o.secureXDS, Names: o.names}
	to.MaxIdentityStreams = o.identityStreams
}
