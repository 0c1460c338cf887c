// Package issue decides which workload gets a certificate of the mesh. It answers requests
// over the config API (package cache/rest/certificate) and Istio's IstioCertificateService.
//
// A workload earns its first certificate by a credential that an identity.Proof takes, and
// each further one by the certificate before, while that is valid. No user's rights earn
// one. The store's history records every certificate issued.
package issue
