package socket

import (
	"path"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// CertificateSecret makes a secret from a certificate chain and its key, both in PEM.
func CertificateSecret(name string, chain, key []byte) *tlsv3.Secret {
	return certificateSecret(name, &tlsv3.TlsCertificate{CertificateChain: inline(chain), PrivateKey: inline(key)})
}

// CertificateFileSecret makes a secret from files on the proxy's machine. If both are in
// one directory, the proxy rereads both whenever a file is moved into it.
func CertificateFileSecret(name, chain, key string) *tlsv3.Secret {
	certificate := &tlsv3.TlsCertificate{CertificateChain: file(chain), PrivateKey: file(key)}
	if path.Dir(chain) == path.Dir(key) {
		certificate.WatchedDirectory = directory(chain)
	}
	return certificateSecret(name, certificate)
}

// RootsSecret makes a secret from CA certificates and a revocation list, in PEM; revoked
// is nil for no list.
func RootsSecret(name string, roots, revoked []byte) *tlsv3.Secret {
	validation := &tlsv3.CertificateValidationContext{TrustedCa: inline(roots)}
	if len(revoked) > 0 {
		validation.Crl = inline(revoked)
	}
	return rootsSecret(name, validation)
}

// RootsFileSecret makes the same from files on the proxy's machine; revoked is empty for
// no list.
func RootsFileSecret(name, roots, revoked string) *tlsv3.Secret {
	validation := &tlsv3.CertificateValidationContext{TrustedCa: file(roots), WatchedDirectory: directory(roots)}
	if revoked != "" {
		validation.Crl = file(revoked)
	}
	return rootsSecret(name, validation)
}

func certificateSecret(name string, certificate *tlsv3.TlsCertificate) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: certificate}}
}

func rootsSecret(name string, validation *tlsv3.CertificateValidationContext) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: validation}}
}

func inline(content []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: content}}
}

func file(name string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: name}}
}

func directory(of string) *corev3.WatchedDirectory {
	return &corev3.WatchedDirectory{Path: path.Dir(of)}
}
