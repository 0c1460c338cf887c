// Package admin answers operators about the xDS server, on the mux of the config API: which
// proxies are connected and what they have (Proxies), how far a change has come
// (ServePropagation), what proxies get for a host (Services), which objects refer to each other
// (ServeReferences), and what a proxy should have and has (ServeProxyConfig). The latter can be
// compared with Envoy's own config dump (ReadDump). Package explain says what a proxy does with
// a request.
//
// The JSON forms of the answers are an API, which the command line reads too.
package admin
