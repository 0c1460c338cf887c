// Package socket makes Envoy's transport sockets, for TLS and the PROXY protocol, and the
// secrets that they use.
package socket
