// Package issue decides which workload gets a certificate of the mesh. It answers requests
// over the config API (package discovery/identity/certificate) and Istio's IstioCertificateService.
//
// A workload gets its first certificate for a credential that an identity.Proof accepts. It
// gets each further one for its current certificate, while that is valid and for some time
// after. No right of a user earns a certificate. The store's history records every issued certificate.
package issue
