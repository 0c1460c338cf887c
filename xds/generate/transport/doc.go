// Package transport decides the TLS of a proxy's connections, at both ends: Server for
// those that it takes, Client for those that it opens. Both read the presence of secrets
// and never their content, so that a new certificate changes no listener and no cluster.
//
// What asks for TLS and lacks a certificate has no socket, and its caller opens nothing and
// sends nothing: it must not fall back to plaintext. [Lack] says what is missing.
package transport
