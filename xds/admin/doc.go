// Package admin serves what operators ask of the xDS server, on the mux of the
// config API: which proxies are connected and what they have (Proxies), how far a
// change has come (ServePropagation), what proxies are told of a host (Services),
// and what an object refers to and what to it (ServeReferences).
//
// The JSON forms of the answers are an API, which the command line reads too.
package admin
