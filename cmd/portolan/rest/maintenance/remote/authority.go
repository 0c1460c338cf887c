package remote

import (
	"context"
	"net/http"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
)

// AuthorityStatus returns the certificate that signs the certificates of the mesh, and
// the trusted roots.
func (c Server) AuthorityStatus(ctx context.Context) (*authority.Status, error) {
	out := &authority.Status{}
	if err := c.JSON(ctx, maintenance.AuthorityPath, out); err != nil {
		return nil, err
	}
	return out, nil
}

// RotateAuthority does a step of a rotation of the root.
func (c Server) RotateAuthority(ctx context.Context, step string, force bool) (*authority.Status, error) {
	out := &authority.Status{}
	if _, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: maintenance.RotationPath, Body: maintenance.RotationStep{Step: step, Force: force}}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// BeginAuthority makes the root of a mesh that has none.
func (c Server) BeginAuthority(ctx context.Context) (*authority.Status, error) {
	out := &authority.Status{}
	if _, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: maintenance.AuthorityPath}, out); err != nil {
		return nil, err
	}
	return out, nil
}
