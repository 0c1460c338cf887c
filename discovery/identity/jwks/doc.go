// Package jwks fetches the keys of issuers of JWTs, and keeps them.
//
// Keys returns the keys of a source at once if it has some. Fetches run in Run: one at a
// time of each source, bounded in size and time, again after a while, and at an unknown key
// id no oftener than once a minute. What a source gave last stays good while it is away or
// answers nonsense.
//
//	fetcher := jwks.New(jwks.Options{})
//	go fetcher.Run(ctx)
//	keys, err := fetcher.Keys(ctx, jwks.Source{URL: "https://accounts.example/keys"}, header.KeyID)
package jwks
