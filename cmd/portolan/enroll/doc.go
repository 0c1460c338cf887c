// Package enroll gets the certificate of a machine from the mesh, and keeps it fresh. The key
// is made on the machine and never leaves it.
//
// The files of a directory are always of one certificate:
//
//	cert-chain.pem   the certificate and what leads from it to a root
//	key.pem          its key
//	root-cert.pem    the roots that the mesh trusts
//
// They are links below the link ..data, which one rename replaces, as in a volume of
// Kubernetes. Envoy notices that where it watches the directory.
package enroll
