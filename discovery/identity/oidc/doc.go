// Package oidc verifies JWTs of OpenID Connect issuers. Clouds, CI systems and clusters give
// them to machines, identity providers to users.
//
// The TokenIssuer objects of the mesh say whose tokens are trusted and who their holders are.
// Verify finds the issuer of a token, gets its keys from package jwks, and checks signature,
// audience and times. Prove derives a workload's identity from the claims, and User a user of
// the API.
package oidc
