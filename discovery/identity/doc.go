// Package identity says who workloads are. Identities are those of SPIFFE, in the form of
// Istio: spiffe://<trust domain>/ns/<namespace>/sa/<service account>.
package identity
