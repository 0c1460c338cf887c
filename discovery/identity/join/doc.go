// Package join makes join tokens, by which machines prove who they are before they have a
// certificate.
//
// Create makes a token, which is shown once, and stores a JoinToken object with its hash only.
// The text of a token names its object, so Prove reads one object. It compares the hash,
// checks expiry, uses and source, and counts the use by an update of the object at the version
// that it read. If several servers count the same use, one wins.
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
// the creation of tokens to the config API. Clean removes expired objects.
package join
