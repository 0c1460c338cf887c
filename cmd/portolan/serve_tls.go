package main

import (
	"net"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/xds"
)

// tlsFlags say how other machines are served.
type tlsFlags struct {
	cert, key, clientCA string
	secureXDS           string
	insecureXDS         bool
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
	f.IntVar(&o.identityStreams, "max-streams-per-identity", xds.DefaultMaxIdentityStreams, "how many streams of xDS the proxies of one service account may have, which connect to --secure-xds-address")
}

// validate reports what is wrong with the flags, and with the addresses beside them.
func (o *tlsFlags) validate(apiAddress, xdsAddress string, add addFault) {
	if (o.cert == "") != (o.key == "") {
		add("tls-cert", "name both --tls-cert and --tls-key, or neither")
	}
	o.validateAddress("api-address", apiAddress, true, "", add)
	o.validateAddress("xds-address", xdsAddress, o.insecureXDS,
		"use 127.0.0.1, [::1] or localhost here and --secure-xds-address beside it, or --insecure-xds-anywhere to let everybody read the configuration of every proxy", add)
	if o.secureXDS != "" {
		if _, _, err := net.SplitHostPort(o.secureXDS); err != nil {
			add("secure-xds-address", "%q is not HOST:PORT", o.secureXDS)
		}
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

// validateAddress refuses an address that other machines could reach, unless they may.
func (o *tlsFlags) validateAddress(flag, address string, anywhere bool, instead string, add addFault) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		add(flag, "%q is not HOST:PORT", address)
		return
	}
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() || anywhere {
		return
	}
	add(flag, "%q is reached from other machines, and is served without TLS: %s", address, instead)
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

// apply sets what flags that are valid say.
func (o *tlsFlags) apply(to *serve.Options) {
	to.TLS = serve.TLS{Cert: o.cert, Key: o.key, ClientCA: o.clientCA, SecureXDSAddress: o.secureXDS, Names: o.names}
	to.MaxIdentityStreams = o.identityStreams
}
