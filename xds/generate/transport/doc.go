// Package transport decides the TLS of a proxy's connections: Server for incoming ones,
// Client for outgoing ones. Both read whether secrets exist, never their content, so a
// new certificate changes no listener and no cluster.
//
// If TLS is required but a certificate is missing, there is no socket. Then the caller
// must not open or accept connections; it must not fall back to plaintext. [Lack] says
// what is missing.
package transport
