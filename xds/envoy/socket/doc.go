// Package socket makes the transport sockets of Envoys, TLS and the PROXY protocol, and the
// secrets that they use.
package socket
