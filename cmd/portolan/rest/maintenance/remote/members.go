package remote

import (
	"context"
	"net/http"
	"net/url"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
)

// StoreMembers returns the members of the store's cluster.
func (c Server) StoreMembers(ctx context.Context) (*maintenance.MemberList, error) {
	out := &maintenance.MemberList{}
	if err := c.JSON(ctx, maintenance.MembersPath, out); err != nil {
		return nil, err
	}
	return out, nil
}

// AddStoreMember adds a new member, which has no vote yet.
func (c Server) AddStoreMember(ctx context.Context, name, peerURL string) (*maintenance.MemberChange, error) {
	in := maintenance.MemberRequest{TypeMeta: storeType("StoreMemberRequest"), Name: name, PeerURL: peerURL}
	return c.changeMember(ctx, call.Request{Method: http.MethodPost, Path: maintenance.MembersPath, Body: in})
}

// PromoteStoreMember gives a member a vote once it has caught up. It waits for that up
// to 20 s. A member is named by its name, its id or its peer URL.
func (c Server) PromoteStoreMember(ctx context.Context, name string) (*maintenance.MemberChange, error) {
	return c.changeMember(ctx, call.Request{Method: http.MethodPost, Path: maintenance.MembersPath + "/" + url.PathEscape(name) + "/promote"})
}

// RemoveStoreMember removes a member from the cluster for good. A member is named by its
// name, its id or its peer URL.
func (c Server) RemoveStoreMember(ctx context.Context, name string) (*maintenance.MemberChange, error) {
	return c.changeMember(ctx, call.Request{Method: http.MethodDelete, Path: maintenance.MembersPath + "/" + url.PathEscape(name)})
}

// InviteStoreMember makes a token with which a server joins the store.
func (c Server) InviteStoreMember(ctx context.Context, in maintenance.Invitation) (*maintenance.Invitation, error) {
	in.TypeMeta = storeType("StoreInvitation")
	out := &maintenance.Invitation{}
	_, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: maintenance.InvitationsPath, Body: in}, out)
	return out, err
}

func (c Server) changeMember(ctx context.Context, in call.Request) (*maintenance.MemberChange, error) {
	out := &maintenance.MemberChange{}
	if _, err := c.Do(ctx, in, out); err != nil {
		return nil, err
	}
	return out, nil
}
