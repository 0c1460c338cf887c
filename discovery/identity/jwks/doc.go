// Package jwks fetches the keys of issuers of JWTs, and keeps them.
//
// Keys returns the keys of a source at once if it has some. Run fetches them: one fetch at a
// time for each source, bounded in size and time. It repeats the fetch when the keys are stale, by
// what the source says within bounds, and for an unknown key id at most once a minute. The last
// good keys of a source stay valid while the source is away or answers nonsense.
//
//	fetcher := jwks.New(jwks.Options{})
//	go fetcher.Run(ctx)
//	keys, err := fetcher.Keys(ctx, jwks.Source{URL: "https://accounts.example/keys"}, header.KeyID)
package jwks
