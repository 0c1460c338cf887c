package access

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RevokedIdentity stops the renewal of certificates of a service account in its own
// namespace, for as long as the object exists.
type RevokedIdentity struct {
	// ServiceAccount is the account.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Before restricts the object to certificates issued before that time: a workload that
	// proves itself anew gets a new one, which is renewed. If nil, the account gets no
	// certificate at all.
	Before *metav1.Time `json:"before,omitempty"`
	// Reason is what the server tells a refused client.
	Reason string `json:"reason,omitempty"`
}
