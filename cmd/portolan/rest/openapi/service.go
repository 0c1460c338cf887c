package openapi

import (
	"net/http"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	pathV2 = "/openapi/v2"
	pathV3 = "/openapi/v3"
)

// Options are what a Service knows besides the kinds.
type Options struct {
	// Version is the version of the program.
	Version string
	// HasStatus says whether clients can set the status of a kind by itself; nil means of
	// none.
	HasStatus func(*schema.Schema) bool
}

// Route is a path, and what serves GET of it.
type Route struct {
	Path    string
	Handler http.Handler
}

// Routes returns the paths of the documents: /openapi/v2, the index /openapi/v3, and one
// for each API version below it. A document is made when it is first asked for, and then
// kept. Clients get JSON or protobuf, as they accept, and an ETag.
func Routes(schemas schema.Set, o Options) []Route {
	whole := once(func() *spec.Swagger { return swagger(schemas, o) })
	routes := &routes{}
	handler.NewOpenAPIServiceLazy(once(func() *spec.Swagger {
		document, _, _ := whole.Get() // never an error
		return withoutNullable(document)
	})).RegisterOpenAPIVersionedService(pathV2, routes)

	v3 := handler3.NewOpenAPIService()
	routes.Handle(pathV3, http.HandlerFunc(v3.HandleDiscovery))
	for _, name := range groupVersions(schemas) {
		v3.UpdateGroupVersionLazy(name, once(func() *spec3.OpenAPI {
			document, _, _ := whole.Get()
			return openapiconv.ConvertV2ToV3(aggregator.FilterSpecByPathsWithoutSideEffects(document, []string{"/" + name + "/"}))
		}))
		routes.Handle(pathV3+"/"+name, http.HandlerFunc(v3.HandleGroupVersion))
	}
	return routes.list
}

// once returns a value that is made when it is first asked for.
func once[T any](value func() T) cached.Value[T] {
	return cached.Once(cached.Func(func() (T, string, error) { return value(), "", nil }))
}

// routes collects what a package of Kubernetes registers.
type routes struct{ list []Route }

// Handle implements common.PathHandler.
func (r *routes) Handle(path string, handler http.Handler) {
	r.list = append(r.list, Route{path, handler})
}
