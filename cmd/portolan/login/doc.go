// Package login logs people in with an OpenID Connect provider by the device flow (RFC 8628):
// the program shows a URL and a code, and whoever opens the URL in a browser, on any machine,
// lets the program in. It needs no browser and no port of its own.
//
// What counts is the ID token: the config API takes it as a bearer token. A refresh token, if
// the provider gives one, earns the next. No error and no output has either.
package login
