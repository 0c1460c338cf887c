package access

import (
	"net/http"
	"strings"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// ours is the path prefix of Portolan's own API group.
const ours = "/apis/" + access.Group + "/v1/"

// Views returns the names besides kinds that a rule may list, sorted: what the server offers
// at paths of its own. Some servers lack some of them.
func Views() []string {
	return []string{
		"certificate-authority", "consul", "explain", "file", "findings", "log-levels", "mesh", "metrics", "paths", "profiles", "propagation",
		"proxies", "proxyconfig", "proxysettings", "records", "references", "sealing", "services", "sources", "store",
	}
}

// namespaces is the kind of namespaces. Who may get objects of that kind in a namespace may get
// that namespace itself; to change one, as to list them, takes a right in all namespaces.
var namespaces = schema.Side().Kind(schema.Namespace).Plural

// actionOf translates a request into the terms of rules. root is the root namespace of the
// mesh.
func actionOf(a Request, root string) action {
	if a.Resource != "" {
		kind := a.Resource
		if a.Subresource != "" {
			kind += "/" + a.Subresource
		}
		out := action{verb: verbOf(a.Verb), kind: kind, namespace: a.Namespace, name: a.Name}
		if a.Resource == namespaces {
			if out.namespace = ""; out.verb == access.Get {
				out.namespace = a.Name
			}
		}
		return out
	}
	out := ofPath(a)
	if out.kind == "users" {
		out.namespace = root
	}
	if a.Verb == access.Administer && out.verb != access.Reveal {
		out.verb = access.Administer
	}
	return out
}

// demands returns all that a caller must be allowed to do for a request. Who deletes a collection
// also lists it: the request selects objects, and the answer has them.
func demands(a Request, root string) []action {
	out := []action{actionOf(a, root)}
	if a.Resource != "" && strings.EqualFold(a.Verb, deleteCollection) {
		listed := out[0]
		listed.verb = access.List
		out = append(out, listed)
	}
	return out
}

// ofPath returns the action of a request to a path outside all kinds. An unknown path is for
// administrators.
func ofPath(a Request) action {
	rest, isOurs := strings.CutPrefix(a.Path, ours)
	first, below, _ := strings.Cut(rest, "/")
	switch {
	case isOurs && first == "sealing" && strings.HasPrefix(below, "data/"):
		parts := strings.Split(below, "/")
		if len(parts) == 3 {
			return action{verb: access.Reveal, kind: "secrets", namespace: parts[1], name: parts[2]}
		}
		return action{verb: access.Administer, kind: "secrets"}
	case isOurs && first == "selfaccess": // everybody may ask what they may do
		return action{open: true}
	case isOurs && first == "users" && below != "":
		name, _, _ := strings.Cut(below, "/")
		return action{verb: access.Update, kind: first, name: name} // the tokens of the user
	case isOurs && first != "":
		return action{verb: verbOf(a.Verb), kind: first, namespace: narrowed(first, a)}
	case a.Path == "/metrics":
		return action{verb: verbOf(a.Verb), kind: "metrics"}
	case strings.HasPrefix(a.Path, "/debug/"):
		return action{verb: access.Administer, kind: "profiles"}
	case isDiscovery(a.Path):
		return action{open: true}
	}
	return action{verb: access.Administer, kind: "paths"}
}

// deleteCollection is Kubernetes' verb for the deletion of all objects that a request selects.
const deleteCollection = "DELETECOLLECTION"

// verbOf returns the verb of rules for an HTTP method, or a verb of Kubernetes: who may update
// may patch, and who may delete and list all objects of a kind may delete a collection.
func verbOf(method string) string {
	switch strings.ToUpper(method) {
	case http.MethodGet, http.MethodHead:
		return access.Get
	case http.MethodPost:
		return access.Create
	case http.MethodPut, http.MethodPatch:
		return access.Update
	case http.MethodDelete, deleteCollection:
		return access.Delete
	}
	return method // a verb already, such as administer
}

// narrowed returns the namespace to which a query limits a view; empty means all namespaces.
func narrowed(view string, a Request) string {
	q := a.Query
	switch view {
	case "findings", "references", "proxies", "proxyconfig", "proxysettings":
		return q.Get("namespace")
	case "propagation":
		if q.Get("kind") != "" && q.Get("revision") == "" && q.Get("change") == "" {
			return q.Get("namespace")
		}
	}
	return ""
}

// isDiscovery says whether a path only describes the API, and shows no stored object.
func isDiscovery(path string) bool {
	switch {
	case path == "/", path == "/api", path == "/apis", path == "/version", path == "/version/":
		return true
	case strings.HasPrefix(path, "/openapi"), strings.HasPrefix(path, "/swagger"):
		return true
	case strings.HasPrefix(path, "/apis/authorization.k8s.io/"), strings.HasPrefix(path, "/apis/authentication.k8s.io/"):
		return true
	case path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": // of which there are none
		return true
	}
	if group, ok := strings.CutPrefix(path, "/apis/"); ok {
		return strings.Count(strings.TrimSuffix(group, "/"), "/") <= 1
	}
	if version, ok := strings.CutPrefix(path, "/api/"); ok {
		return !strings.Contains(version, "/")
	}
	return false
}
