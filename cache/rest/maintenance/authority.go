package maintenance

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest"
)

// AuthorityPath answers a GET with an AuthorityStatus; a POST makes the root of a mesh
// without one. RotationPath takes a POST of a RotationStep. Both POSTs are Private, and
// are answered with an AuthorityStatus.
const (
	AuthorityPath = "/apis/portolan.io/v1/certificate-authority"
	RotationPath  = AuthorityPath + "/rotation"
)

// The steps of a rotation.
const (
	RotateStart  = "start"
	RotateFinish = "finish"
	RotateAbort  = "abort"
)

// An AuthorityStatus says which certificate signs, and which roots are trusted.
type AuthorityStatus struct {
	metav1.TypeMeta `json:",inline"`
	TrustDomain     string `json:"trustDomain"`
	// Source is the secret or the file of the signing certificate.
	Source string `json:"source"`
	// Signs is the signing certificate; empty if there is none yet.
	Signs AuthorityCertificate `json:"signs,omitzero"`
	// Roots are the trusted roots, and Bundle is the same in PEM.
	Roots  []AuthorityCertificate `json:"roots,omitempty"`
	Bundle string                 `json:"bundle,omitempty"`
	// Rotation is the rotation under way, nil for none.
	Rotation *Rotation `json:"rotation,omitempty"`
	// LongestLife is the longest life of a certificate that may be requested.
	LongestLife string `json:"longestLife"`
	// Problem says why nothing can be signed, or what expires soon.
	Problem string `json:"problem,omitempty"`
}

// AuthorityCertificate is a certificate of an authority.
type AuthorityCertificate struct {
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

// A RotationStep requests a step of a rotation.
type RotationStep struct {
	metav1.TypeMeta `json:",inline"`
	// Step is RotateStart, RotateFinish or RotateAbort.
	Step string `json:"step"`
	// Force finishes even if certificates of the former root may be valid.
	Force bool `json:"force,omitempty"`
}

// Authority is the certificate authority of the mesh. Its methods return errors of package
// storage.
type Authority interface {
	AuthorityStatus(context.Context) (AuthorityStatus, error)
	// Begin makes a root, unless there is one.
	Begin(context.Context) error
	// Rotate does a step of a rotation.
	Rotate(ctx context.Context, step string, force bool) error
}

func (o Options) authorityStatus(w http.ResponseWriter, r *http.Request) error {
	status, err := o.Authority.AuthorityStatus(r.Context())
	if err != nil {
		return err
	}
	status.TypeMeta = typeMeta("AuthorityStatus")
	rest.WriteJSON(w, http.StatusOK, status)
	return nil
}

func (o Options) beginAuthority(w http.ResponseWriter, r *http.Request) error {
	if err := o.Authority.Begin(r.Context()); err != nil {
		return err
	}
	return o.authorityStatus(w, r)
}

func (o Options) rotate(w http.ResponseWriter, r *http.Request) error {
	var in RotationStep
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if err := o.Authority.Rotate(r.Context(), in.Step, in.Force); err != nil {
		return err
	}
	return o.authorityStatus(w, r)
}
