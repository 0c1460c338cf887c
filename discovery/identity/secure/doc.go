// Package secure has the TLS listeners for other machines: their certificates, which clients
// they trust, and what an attacker may cost them.
//
//	pair, err := secure.LoadPair(certFile, keyFile)  // follows the files in pair.Run
//	l := secure.Listen(tcp, secure.Options{Certificate: pair.Certificate, Roots: trust.Roots, ...})
//
// Accept returns a connection when its handshake is complete, as a *tls.Conn. Handshakes run
// concurrently, each within HandshakeTimeout, and at most Options.HalfOpen of them. Beyond
// that, the source with the most handshakes loses its oldest. So clients that stall lock out
// themselves and nobody else.
//
// A client may show a certificate. One that does not verify ends the handshake: the client
// gets a TLS alert, and the reason goes to Options.Logger. Peer returns the verified
// certificate. Sessions are never resumed, so each connection is verified by the roots of its
// time.
package secure
