// Package identity says who workloads are. An Identity is a SPIFFE ID in Istio's form:
// spiffe://<trust domain>/ns/<namespace>/sa/<service account>.
package identity
