// Package enroll gets a machine's certificate from the mesh, and renews it. The private key is
// made on the machine and never leaves it.
//
// The files in a directory always belong to one certificate:
//
//	cert-chain.pem   the certificate and what leads from it to a root
//	key.pem          its key
//	root-cert.pem    the roots that the mesh trusts
//
// The files are links through the link ..data, which one rename replaces, as in a Kubernetes
// volume. An Envoy that watches the directory notices that.
package enroll
