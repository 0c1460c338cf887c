// Package access decides who may come in at the config API, and what they may do there.
//
// A Keeper authenticates each request: by a bearer token, a client certificate, the peer of
// the unix socket, or that it comes from this machine while there are no users. It authorizes
// by a Policy, which is derived from the users, roles and bindings of one snapshot of the
// store, and follows them. Grants keeps everybody from giving away what they do not have.
// Register adds the paths that make users and tokens, and those that answer what one may do.
//
//	keeper := access.NewKeeper(access.Options{Snapshot: mirror.Snapshot, Schemas: schemas, Root: "istio-system"})
//	api, err := rest.New(rest.Options{Authenticator: keeper, Authorizer: keeper, ...})
package access
