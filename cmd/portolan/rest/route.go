package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// call is one request, parsed for the handlers of verbs.
type call struct {
	w http.ResponseWriter
	r *http.Request

	query      url.Values
	identity   access.Identity
	identified bool   // whether identity is set
	rights     any    // the rights when the caller was admitted, see Changing
	refused    string // why the caller was refused; empty if not

	// The parts of the path. schema is nil outside the config API; namespace and name
	// are empty if the path names all.
	schema                   *schema.Schema
	version, namespace, name string
	subresource              string
	verb                     string

	kind string // for metrics; empty outside the config API
	form form   // of the answer

	releases []func() // called when the request is answered
}

func (c *call) access() access.Request {
	wants := access.Request{Verb: c.verb, Path: c.r.URL.Path}
	if c.schema != nil {
		wants.Group, wants.Version, wants.Resource = c.schema.Group, c.version, c.schema.Plural
		wants.Namespace, wants.Name, wants.Subresource = c.namespace, c.name, c.subresource
	} else {
		wants.Query = c.query
	}
	return wants
}

func (c *call) key() config.Key {
	return config.Key{Kind: c.schema.GroupVersionKind, Namespace: c.namespace, Name: c.name}
}

// groupResource returns the resource as in Kubernetes' error messages, empty outside the
// config API.
func (c *call) groupResource() runtimeschema.GroupResource {
	if c.schema == nil {
		return runtimeschema.GroupResource{}
	}
	return runtimeschema.GroupResource{Group: c.schema.Group, Resource: c.schema.Plural}
}

// resource serves the paths of objects.
func (s *Server) resource(w http.ResponseWriter, r *http.Request) {
	s = s.serverOf(r)
	s.serve(w, r, func(c *call) error {
		if err := s.locate(c); err != nil {
			return err
		}
		verb := s.verb(c)
		if verb == nil {
			c.w.Header().Set("Allow", allowHeader(c))
			return methodNotAllowed(c)
		}
		if err := s.admit(c); err != nil {
			return err
		}
		if err := c.negotiate(); err != nil {
			return err
		}
		var found faults
		c.setMessage(c.query.Get("message"), &found) // a read ignores the message
		c.checkFieldValidation(&found)
		c.checkManager(&found)
		if err := found.error("the parameters of the URL cannot be read", metav1.StatusDetails{}); err != nil {
			return err
		}
		return verb(c)
	})
}

// serve runs a handler behind the guard, answers its error and counts the request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, handle func(*call) error) {
	recorder := &recorder{ResponseWriter: w}
	c := &call{w: recorder, r: r, verb: strings.ToLower(r.Method)}
	start := time.Now()
	defer func() {
		for _, release := range c.releases {
			release()
		}
		s.metrics.observe(c, recorder.code, time.Since(start))
	}()
	err := s.guard(c)
	if err == nil {
		c.query, err = parseQuery(r)
	}
	if err == nil {
		err = handle(c)
	}
	if err = s.firstOfAll(c, err); err != nil {
		s.fail(c, err)
	}
	s.tellRefusal(c)
}

// firstOfAll returns the error of a call. Whoever proves nothing is told that, and no other fault:
// not which kinds there are, nor what they take.
func (s *Server) firstOfAll(c *call, err error) error {
	if err == nil || c.identified || c.refused != "" {
		return err
	}
	if unknown := s.authenticate(c); unknown != nil {
		c.w.Header().Del("Allow")
		return unknown
	}
	return err
}

func parseQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refusal.BadRequest(fmt.Sprintf("the query of the URL cannot be read: %v", err))
	}
	return query, nil
}

// guarded puts a foreign handler behind guard and admit.
func (s *Server) guarded(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(c *call) error {
			if err := s.admit(c); err != nil {
				return err
			}
			handler.ServeHTTP(c.w, c.r)
			return nil
		})
	})
}

// locate finds the schema, namespace and name that the path names.
func (s *Server) locate(c *call) error {
	group, version, plural := c.r.PathValue("group"), c.r.PathValue("version"), c.r.PathValue("plural")
	found, version := s.schemas.At(group, version, plural)
	c.version, c.namespace, c.name = version, c.r.PathValue("namespace"), c.r.PathValue("name")
	c.subresource = c.r.PathValue("subresource")
	switch {
	case found == nil && group == "":
		return refusal.NotFound(fmt.Sprintf("no resource %q in the core group: /api/%s lists what there is", plural, version))
	case found == nil && len(s.versions(group)) == 0:
		return refusal.NotFound(fmt.Sprintf("no resource %q in group %q, which is not served: /apis lists the groups", plural, group))
	case found == nil:
		return refusal.NotFound(fmt.Sprintf("no resource %q in group %q: /apis/%s lists what there is", plural, group, group))
	case !found.Serves(version):
		return refusal.NotFound(fmt.Sprintf("%s is not served as %s: use %s", plural,
			config.GroupVersionKind{Group: group, Version: version}.APIVersion(), strings.Join(found.Versions, " or ")))
	case found.ClusterScoped && c.namespace != "":
		return refusal.NotFound(fmt.Sprintf("%s have no namespace: leave namespaces/%s out of the path", plural, c.namespace))
	case !found.ClusterScoped && c.namespace == "" && c.name != "":
		return refusal.NotFound(fmt.Sprintf("%s are in namespaces: put namespaces/<namespace> before %s in the path", plural, plural))
	case c.subresource != "" && (c.subresource != statusPath || !s.hasStatus(found)):
		return refusal.NotFound(fmt.Sprintf("%s have no %s that can be read or set by itself", plural, c.subresource))
	}
	c.schema, c.kind = found, found.Kind
	return nil
}

// verb finds the handler of the method, and sets the verb of the call; nil if the path
// does not support the method.
func (s *Server) verb(c *call) func(*call) error {
	method := c.r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	verbs := map[string]string{http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}
	if c.name == "" {
		verbs = map[string]string{http.MethodGet: "list", http.MethodPost: "create", http.MethodDelete: "deletecollection"}
		if truthy(c.query, "watch") {
			verbs[http.MethodGet] = "watch"
		}
		if c.namespace == "" && !c.schema.ClusterScoped {
			delete(verbs, http.MethodPost)
			delete(verbs, http.MethodDelete) // one namespace at a time, as in Kubernetes
		}
	}
	handlers := map[string]func(*call) error{
		"get": s.get, "list": s.list, "watch": s.watch, "create": s.create, "update": s.replace, "patch": s.patched, "delete": s.remove,
		"deletecollection": s.removeSelected,
	}
	if c.schema.GroupVersionKind == schema.Namespace {
		handlers["delete"] = s.removeNamespace
		if c.name == "" {
			delete(verbs, http.MethodDelete) // one at a time, as in Kubernetes
		}
	}
	if c.subresource != "" {
		delete(verbs, http.MethodDelete)
		handlers["update"], handlers["patch"] = s.setStatus, s.patchStatus
	}
	verb, ok := verbs[method]
	if !ok {
		return nil
	}
	c.verb = verb
	return handlers[verb]
}

func allowHeader(c *call) string {
	switch {
	case c.subresource != "":
		return "GET, PATCH, PUT"
	case c.name != "":
		return "DELETE, GET, PATCH, PUT"
	case c.namespace != "" || c.schema.ClusterScoped:
		return "DELETE, GET, POST"
	default:
		return "GET"
	}
}

// truthy says whether a query parameter is true, as Kubernetes reads it.
func truthy(query url.Values, name string) bool {
	if !query.Has(name) {
		return false
	}
	value := strings.ToLower(query.Get(name))
	return value != "false" && value != "0"
}

func (s *Server) unknownPath(w http.ResponseWriter, r *http.Request) {
	c := &call{w: w, r: r}
	s.fail(c, refusal.NotFound(fmt.Sprintf("no such path: %s; /apis lists the groups of the API", r.URL.Path)))
}

// typeMeta returns the kind and apiVersion of an answer, in the call's API version.
func (c *call) typeMeta(suffix string) metav1.TypeMeta {
	kind := c.schema.GroupVersionKind
	kind.Version = c.version
	return metav1.TypeMeta{Kind: kind.Kind + suffix, APIVersion: kind.APIVersion()}
}
