package schema_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// server is the spec of a Gateway with one server that has some TLS.
func server(protocol, tls string) string {
	return "\nservers: [{port: {number: 443, name: p, protocol: " + protocol + "}, hosts: ['*'], tls: " + tls + "}]"
}

// TestServerTLSRules: each refusal names the field and what to do.
func TestServerTLSRules(t *testing.T) {
	t.Parallel()
	const at = "spec.servers[0].tls."
	spki, hash := strings.Repeat("A", 43)+"=", strings.Repeat("a0", 32)
	colons := strings.TrimSuffix(strings.Repeat("a0:", 32), ":")
	oneSource := ": the certificates come from one of credentialName, credentialNames, serverCertificate with privateKey, and tlsCertificates"
	noClients := " has no effect with mode SIMPLE, which asks clients for no certificate: use MUTUAL"
	rules := []rule{
		{name: "a secret", spec: server("HTTPS", "{mode: SIMPLE, credentialName: door}")},
		{name: "a secret in Istio's other forms", spec: server("HTTPS", "{mode: SIMPLE, credentialNames: ['kubernetes://door', shop/door.rsa]}")},
		{name: "the certificate of the mesh", spec: server("HTTPS", "{mode: SIMPLE, credentialName: 'builtin://'}")},
		{name: "files", spec: server("TLS", "{mode: SIMPLE, serverCertificate: /c, privateKey: /k}")},
		{name: "several files", spec: server("TLS", "{mode: OPTIONAL_MUTUAL, caCertificates: /a, caCrl: /l, tlsCertificates: [{serverCertificate: /c, privateKey: /k}, {serverCertificate: /d, privateKey: /l}]}")},
		{name: "MUTUAL by a secret", spec: server("HTTPS", "{mode: MUTUAL, credentialName: door, caCertCredentialName: clients, subjectAltNames: [a.b], verifyCertificateSpki: ['"+spki+"'], verifyCertificateHash: ["+hash+", '"+colons+"']}")},
		{name: "ISTIO_MUTUAL", spec: server("TLS", "{mode: ISTIO_MUTUAL, subjectAltNames: ['spiffe://a/b'], minProtocolVersion: TLSV1_3}")},
		{name: "passed on", spec: server("TLS", "{mode: PASSTHROUGH}")},
		{name: "passed on by SNI", spec: server("TLS", "{mode: AUTO_PASSTHROUGH}")},
		{name: "versions and suites", spec: server("HTTPS", "{mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_0, maxProtocolVersion: TLSV1_2, cipherSuites: [ALL, AES128-SHA, '[ECDHE-RSA-AES256-SHA|AES256-SHA]']}")},

		{name: "MUTUAL without an authority", spec: server("TLS", "{mode: MUTUAL, serverCertificate: /c, privateKey: /k}"),
			refused: []string{at + "caCertificates: is missing: mode MUTUAL needs it"}},
		{name: "no certificate", spec: server("TLS", "{mode: SIMPLE}"),
			refused: []string{at + "serverCertificate: is missing: mode SIMPLE needs it", at + "privateKey: is missing: mode SIMPLE needs it"}},
		{name: "files without keys", spec: server("TLS", "{mode: SIMPLE, tlsCertificates: [{serverCertificate: /c}, {privateKey: /k, caCertificates: /a}]}"),
			refused: []string{
				at + "tlsCertificates[0].privateKey: is missing: mode SIMPLE needs it",
				at + "tlsCertificates[1].serverCertificate: is missing: mode SIMPLE needs it",
			},
			warned: []string{at + "tlsCertificates[1].caCertificates has no effect: the authority of clients is caCertificates of tls"}},
		{name: "PASSTHROUGH with a certificate", spec: server("TLS", "{credentialName: door, serverCertificate: /c, minProtocolVersion: TLSV1_3}"),
			refused: []string{
				at + "serverCertificate: excludes mode PASSTHROUGH, the mode unless set: proxies pass the TLS on and do not end it: use SIMPLE or MUTUAL, or leave it out",
				at + "credentialName: excludes mode PASSTHROUGH, the mode unless set: proxies pass the TLS on and do not end it: use SIMPLE or MUTUAL, or leave it out",
			},
			warned: []string{at + "minProtocolVersion has no effect with mode PASSTHROUGH, the mode unless set: proxies pass the TLS on and do not end it"}},
		{name: "AUTO_PASSTHROUGH with a certificate", spec: server("TLS", "{mode: AUTO_PASSTHROUGH, credentialNames: [door]}"),
			refused: []string{at + "credentialNames: excludes mode AUTO_PASSTHROUGH: proxies pass the TLS on and do not end it: use SIMPLE or MUTUAL, or leave it out"}},
		{name: "ISTIO_MUTUAL with a certificate", spec: server("TLS", "{mode: ISTIO_MUTUAL, privateKey: /k, credentialName: door, caCertCredentialName: clients}"),
			refused: []string{
				at + "privateKey: excludes mode ISTIO_MUTUAL, which uses the certificate and the authority of the mesh: leave it out, or use MUTUAL",
				at + "credentialName: excludes mode ISTIO_MUTUAL, which uses the certificate and the authority of the mesh: leave it out, or use MUTUAL",
				at + "caCertCredentialName: excludes mode ISTIO_MUTUAL, which uses the certificate and the authority of the mesh: leave it out, or use MUTUAL",
			}},
		{name: "two sources", spec: server("TLS", "{mode: SIMPLE, credentialName: door, credentialNames: [a], serverCertificate: /c, privateKey: /k, tlsCertificates: [{serverCertificate: /c, privateKey: /k}]}"),
			refused: []string{
				at + "credentialNames: excludes credentialName" + oneSource, at + "serverCertificate: excludes credentialName" + oneSource, at + "tlsCertificates: excludes credentialName" + oneSource,
			}},
		{name: "three certificates", spec: server("TLS", "{mode: SIMPLE, credentialNames: [a, b, a, '']}"),
			refused: []string{
				at + "credentialNames: has 4: a server has at most 2, one of RSA and one of ECDSA",
				at + "credentialNames[3]: is missing", at + `credentialNames[2]: "a" is set twice, also at ` + at + "credentialNames[0]",
			}},
		{name: "files beside a secret", spec: server("TLS", "{mode: MUTUAL, credentialName: door, caCertificates: /a}"),
			warned: []string{at + "caCertificates has no effect beside credentialName: store the authority in the secret as cacert or ca.crt, in one whose name ends in -cacert, or name one in caCertCredentialName"}},
		{name: "a revocation list beside a secret", spec: server("TLS", "{mode: MUTUAL, credentialName: door, caCrl: /l}"),
			refused: []string{at + "caCrl: excludes credentialName: store the list in the secret, as crl or ca.crl"}},
		{name: "files of no directory", spec: server("TLS", "{mode: SIMPLE, serverCertificate: certs/c.pem, privateKey: /k}"),
			warned: []string{at + "serverCertificate is no path from the root: each proxy looks for the file where it was started: begin it with /"}},
		{name: "a revocation list for nobody", spec: server("TLS", "{mode: SIMPLE, serverCertificate: /c, privateKey: /k, caCrl: /l}"),
			refused: []string{at + "caCrl: has no use with mode SIMPLE, which asks clients for no certificate: leave it out"}},
		{name: "an authority in a secret beside files", spec: server("TLS", "{mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /a, caCertCredentialName: a}"),
			warned: []string{at + "caCertCredentialName has no effect without credentialName or credentialNames: use caCertificates beside files"}},
		{name: "clients that are not asked", spec: server("TLS", "{mode: SIMPLE, credentialName: door, caCertCredentialName: a, subjectAltNames: [a], verifyCertificateSpki: ['"+spki+"'], verifyCertificateHash: ["+hash+"], insecureSkipVerify: true}"),
			warned: []string{
				at + "caCertCredentialName" + noClients, at + "subjectAltNames" + noClients, at + "verifyCertificateSpki" + noClients,
				at + "verifyCertificateHash" + noClients, at + "insecureSkipVerify" + noClients,
			}},
		{name: "names of secrets", spec: server("TLS", "{mode: SIMPLE, credentialNames: ['configmap://a', My_Door]}"),
			warned: []string{
				at + `credentialNames[0] "configmap://a" is not served: configmap is no place of secrets here: name a Secret`,
				at + `credentialNames[1] "My_Door" can be the name of no Secret: write its name alone, in lower case`,
			}},
		{name: "hashes", spec: server("TLS", "{mode: MUTUAL, credentialName: a, verifyCertificateSpki: [AA==], verifyCertificateHash: ['a0:b']}"),
			refused: []string{
				at + `verifyCertificateSpki[0]: must be the SHA-256 of a public key in base64, 44 characters, is "AA=="`,
				at + `verifyCertificateHash[0]: must be the SHA-256 of a certificate in hex, 64 characters or 95 with colons, is "a0:b"`,
			}},
		{name: "odd versions", spec: server("TLS", "{mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_1, maxProtocolVersion: TLSV1_0}"),
			warned: []string{
				at + "minProtocolVersion TLSV1_1 is above maxProtocolVersion, TLSV1_0: no client can connect",
				at + "minProtocolVersion TLSV1_1 needs cipherSuites that go with it: those used unless set are of TLS 1.2 and later",
			}},
		{name: "odd suites", spec: server("TLS", "{mode: SIMPLE, credentialName: a, cipherSuites: [AES128-SHA, TLS_AES_128_GCM_SHA256, AES128-SHA, '[AES128-SHA|x]', '!aNULL', '-AES256-SHA']}"),
			refused: []string{
				at + `cipherSuites[4]: "!aNULL" takes suites away: write out those that may be used`,
				at + `cipherSuites[5]: "-AES256-SHA" takes suites away: write out those that may be used`,
			},
			warned: []string{
				at + `cipherSuites[1] "TLS_AES_128_GCM_SHA256" is no cipher suite that proxies know, and is left out`,
				at + `cipherSuites[2] "AES128-SHA" stands twice, also at ` + at + `cipherSuites[0]`,
				at + `cipherSuites[3] "[AES128-SHA|x]" is no cipher suite that proxies know, and is left out`,
			}},
		{name: "a redirect of TLS", spec: server("HTTPS", "{mode: SIMPLE, credentialName: a, httpsRedirect: true}"),
			warned: []string{at + "httpsRedirect has no effect with this protocol: set it on the server of protocol HTTP, which sends clients here"}},
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			refused, warned := validate(t, spec(schema.Gateway, r.spec))
			warned = slices.DeleteFunc(warned, func(w string) bool { return strings.HasSuffix(w, "which is not served yet and has no effect") })
			if d := cmp.Diff(r.refused, refused); d != "" {
				t.Errorf("refused (-want +got):\n%s", d)
			}
			if d := cmp.Diff(r.warned, warned, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("warned (-want +got):\n%s", d)
			}
		})
	}
}
