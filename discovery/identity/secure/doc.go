// Package secure has the listeners that serve TLS beyond this machine: their certificate, whom
// they trust, and what an attacker may cost them.
//
//	pair, err := secure.LoadPair(certFile, keyFile)  // follows the files in pair.Run
//	l := secure.Listen(tcp, secure.Options{Certificate: pair.Certificate, Roots: trust.Roots, ...})
//
// A connection comes out of Accept when its handshake is complete, as a *tls.Conn. Handshakes
// run at the same time, each within HandshakeTimeout, and at most Options.HalfOpen of them:
// beyond that the source with the most of them loses its oldest. So clients that begin and
// do not go on keep out themselves and nobody else.
//
// A client may show a certificate. One that does not verify ends the handshake; Options.Logger
// is told why, and the client gets the alert of TLS. Peer returns the verified certificate.
// Sessions are never resumed: each connection is verified by the roots of its time.
package secure
