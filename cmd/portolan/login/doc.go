// Package login logs people in with an OpenID Connect provider by the device flow (RFC 8628).
// The program shows a URL and a code; a user who opens the URL in a browser, on any machine,
// lets the program in. The program needs no browser and no port.
//
// The login's result is an ID token, which the config API accepts as a bearer token. A refresh
// token, if the provider gives one, gets the next ID token. No error or output contains
// either.
package login
