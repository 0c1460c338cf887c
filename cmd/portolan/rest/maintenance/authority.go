package maintenance

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
)

// AuthorityPath answers a GET with an AuthorityStatus; a POST makes the root of a mesh
// without one. RotationPath takes a POST of a RotationStep. Both POSTs are Private, and
// are answered with an AuthorityStatus.
const (
	AuthorityPath = "/apis/portolan.io/v1/certificate-authority"
	RotationPath  = AuthorityPath + "/rotation"
)

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
	AuthorityStatus(context.Context) (authority.Status, error)
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
