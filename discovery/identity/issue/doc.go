// Package issue decides who gets a certificate of the mesh, and answers who asks: over the
// config API (package cache/rest/certificate) and as Istio's IstioCertificateService.
//
// A first certificate is earned by a credential that an identity.Proof takes, and a further
// one by the one before, while it is valid. No user's rights earn one. What was issued is in
// the history of the store.
package issue
