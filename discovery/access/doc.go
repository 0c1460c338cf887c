// Package access decides who may come in at the config API, and what they may do there.
//
// A Keeper authenticates each request by a bearer token, a client certificate, or the peer of
// the unix socket. While there are no users, it also trusts requests from this machine. It
// authorizes by a Policy, which it derives from the users, roles and bindings in a snapshot of
// the store, and keeps up to date. Grants keeps everybody from giving away rights that they do
// not have. Register adds the paths that create users and tokens, and the paths that answer
// what a caller may do.
//
//	keeper := access.NewKeeper(access.Options{Snapshot: mirror.Snapshot, Schemas: schemas, Root: "istio-system"})
//	api, err := rest.New(rest.Options{Authenticator: keeper, Authorizer: keeper, ...})
package access
