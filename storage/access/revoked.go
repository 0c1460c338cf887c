package access

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RevokedIdentity takes certificates away from a service account of its own namespace: while
// the object is there, the certificates that it names are not renewed.
type RevokedIdentity struct {
	// ServiceAccount is the account.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Before restricts it to the certificates that were issued before a time. A workload
	// that proves itself anew then has new ones, and these are renewed. Without it the
	// account has no certificate at all.
	Before *metav1.Time `json:"before,omitempty"`
	// Reason is what the server tells a refused client.
	Reason string `json:"reason,omitempty"`
}
