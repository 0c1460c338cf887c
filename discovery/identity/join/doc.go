// Package join makes join tokens, by which machines prove who they are before they have a
// certificate.
//
// A token is made by Create, shown once, and stored as a JoinToken object that has its hash
// alone. The text of a token names its object, so Prove reads one object: it compares the
// hash, checks expiry, uses and source, and counts the use by an update of that object at
// the version that it read. Of several servers that count the same use, one wins.
//
//	tokens := join.New(join.Options{Store: store, TrustDomain: "cluster.local"})
//	made, err := tokens.Create(ctx, join.Request{Namespace: "shop", ServiceAccount: "web"})
//	...
//	who, err := tokens.Prove(ctx, made.Token, from)
//
// Invite makes a token of another sort, by which a server joins the store, and Admit uses it
// up.
//
// The history of the object says who made a token, and who used it from where. Register adds
// the making to the config API. Clean removes what has ended.
package join
