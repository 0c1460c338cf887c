package secure

import (
	"crypto/tls"
	"crypto/x509"
)

// Peer returns the client certificate of a connection, nil if it has none. It was verified
// when the connection began, and may have expired since.
func Peer(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

// Unverified says whether a client showed a certificate that the handshake did not verify, as
// Options.Unverified permits.
func Unverified(state *tls.ConnectionState) bool {
	return state != nil && len(state.PeerCertificates) > 0 && len(state.VerifiedChains) == 0
}
