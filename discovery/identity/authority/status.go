package authority

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The steps of a rotation.
const (
	RotateStart  = "start"
	RotateFinish = "finish"
	RotateAbort  = "abort"
)

// An Status says which certificate signs, and which roots are trusted.
type Status struct {
	metav1.TypeMeta `json:",inline"`
	TrustDomain     string `json:"trustDomain"`
	// Source is the secret or the file of the signing certificate.
	Source string `json:"source"`
	// Signs is the signing certificate; empty if there is none yet.
	Signs PublicCertificate `json:"signs,omitzero"`
	// Roots are the trusted roots, and Bundle is the same in PEM.
	Roots  []PublicCertificate `json:"roots,omitempty"`
	Bundle string              `json:"bundle,omitempty"`
	// Rotation is the rotation under way, nil for none.
	Rotation *Rotation `json:"rotation,omitempty"`
	// LongestLife is the longest life of a certificate that may be requested.
	LongestLife string `json:"longestLife"`
	// Problem says why nothing can be signed, or what expires soon.
	Problem string `json:"problem,omitempty"`
}

// PublicCertificate is a certificate of an authority.
type PublicCertificate struct {
	Subject string `json:"subject"`
	Issuer  string `json:"issuer"`
	Serial  string `json:"serial"`
	// Fingerprint is the SHA-256 of the certificate.
	Fingerprint string    `json:"fingerprint"`
	NotBefore   time.Time `json:"notBefore"`
	NotAfter    time.Time `json:"notAfter"`
}

// Rotation replaces a root.
type Rotation struct {
	Started time.Time `json:"started"`
	// Former is the fingerprint of the root being replaced.
	Former string `json:"former"`
	// MayFinish is when no certificate of the former root can be valid any more.
	MayFinish time.Time `json:"mayFinish"`
}
