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
