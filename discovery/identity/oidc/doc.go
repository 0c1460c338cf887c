// Package oidc verifies JWTs of OpenID Connect issuers: those that clouds, CI systems and
// clusters give to machines, and identity providers to users.
//
// The TokenIssuer objects of the mesh say whose tokens are trusted and who their holders
// are. Verify finds the issuer of a token, has its keys from package jwks, and checks
// signature, audience and times. Prove makes of the claims the identity of a workload, and
// User a user of the API.
package oidc
