package client

import (
	"context"
	"net/http"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
)

// AuthorityStatus returns the certificate that signs the certificates of the mesh, and
// the trusted roots.
func (c *Client) AuthorityStatus(ctx context.Context) (*authority.Status, error) {
	out := &authority.Status{}
	if err := c.JSON(ctx, maintenance.AuthorityPath, out); err != nil {
		return nil, err
	}
	return out, nil
}

// RotateAuthority does a step of a rotation of the root.
func (c *Client) RotateAuthority(ctx context.Context, step string, force bool) (*authority.Status, error) {
	out := &authority.Status{}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: maintenance.RotationPath, body: maintenance.RotationStep{Step: step, Force: force}}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// BeginAuthority makes the root of a mesh that has none.
func (c *Client) BeginAuthority(ctx context.Context) (*authority.Status, error) {
	out := &authority.Status{}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: maintenance.AuthorityPath}, out); err != nil {
		return nil, err
	}
	return out, nil
}
