// Package openapi describes the kinds of the config API in OpenAPI, versions 2 and 3, as
// Kubernetes does.
//
// Definitions derives the types of all kinds: from the descriptors of messages, and from
// Go structs by reflection. It adds what no type tells: descriptions.yaml has
// descriptions of kinds and fields, and required.go the fields without which validation
// refuses an object. The merge of server-side apply goes by the same definitions.
//
// Routes serves the documents, each of which is made when it is first asked for.
//
//	mux := http.NewServeMux()
//	for _, route := range openapi.Routes(schemas, openapi.Options{Version: version}) {
//		mux.Handle("GET "+route.Path, route.Handler)
//	}
//
// Explainer finds fields by their paths, for the command line.
package openapi
