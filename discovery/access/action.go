package access

import (
	"net/http"
	"strings"

	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/storage/access"
)

// ours is the root of the paths of our own group.
const ours = "/apis/" + access.Group + "/v1/"

// Views are what rules name beside kinds, in order: what the server shows and does at paths of
// its own. Some servers lack some of them.
func Views() []string {
	return []string{
		"certificate-authority", "consul", "explain", "file", "findings", "metrics", "namespaces", "paths", "profiles", "propagation",
		"proxies", "proxyconfig", "records", "references", "sealing", "services", "sources", "store",
	}
}

// actionOf is what an access is, in the words of rules, in a mesh of a root namespace.
func actionOf(a rest.Access, root string) action {
	if a.Resource != "" {
		kind := a.Resource
		if a.Subresource != "" {
			kind += "/" + a.Subresource
		}
		return action{verb: a.Verb, kind: kind, namespace: a.Namespace, name: a.Name}
	}
	out := ofPath(a)
	if out.kind == "users" {
		out.namespace = root
	}
	if a.Verb == rest.Administer && out.verb != access.Reveal {
		out.verb = access.Administer
	}
	return out
}

// ofPath is what an access to a path that is of no kind is. A path that nobody knows is for
// administrators.
func ofPath(a rest.Access) action {
	rest, own := strings.CutPrefix(a.Path, ours)
	first, below, _ := strings.Cut(rest, "/")
	switch {
	case own && first == "sealing" && strings.HasPrefix(below, "data/"):
		parts := strings.Split(below, "/")
		if len(parts) == 3 {
			return action{verb: access.Reveal, kind: "secrets", namespace: parts[1], name: parts[2]}
		}
		return action{verb: access.Administer, kind: "secrets"}
	case own && first == "selfaccess": // everybody may ask what they may do
		return action{open: true}
	case own && first == "users" && below != "":
		name, _, _ := strings.Cut(below, "/")
		return action{verb: access.Update, kind: first, name: name} // its tokens
	case own && first != "":
		return action{verb: verbOf(a.Verb), kind: first, namespace: narrowed(first, a)}
	case a.Path == "/metrics":
		return action{verb: verbOf(a.Verb), kind: "metrics"}
	case a.Path == "/api/v1/namespaces":
		return action{verb: access.List, kind: "namespaces"}
	case strings.HasPrefix(a.Path, "/debug/"):
		return action{verb: access.Administer, kind: "profiles"}
	case isDiscovery(a.Path):
		return action{open: true}
	}
	return action{verb: access.Administer, kind: "paths"}
}

// verbOf is the verb of a method.
func verbOf(method string) string {
	switch strings.ToUpper(method) {
	case http.MethodGet, http.MethodHead:
		return access.Get
	case http.MethodPost:
		return access.Create
	case http.MethodPut:
		return access.Update
	case http.MethodDelete:
		return access.Delete
	}
	return method // such as administer
}

// narrowed is the namespace that a request about several narrows itself to, empty for all.
func narrowed(view string, a rest.Access) string {
	q := a.Query
	switch view {
	case "findings", "references", "proxies", "proxyconfig":
		return q.Get("namespace")
	case "propagation":
		if q.Get("kind") != "" && q.Get("revision") == "" && q.Get("change") == "" {
			return q.Get("namespace")
		}
	}
	return ""
}

// isDiscovery says whether a path says what there is, and nothing of what is stored.
func isDiscovery(path string) bool {
	switch {
	case path == "/", path == "/api", path == "/apis", path == "/version", path == "/version/":
		return true
	case strings.HasPrefix(path, "/openapi"), strings.HasPrefix(path, "/swagger"):
		return true
	case strings.HasPrefix(path, "/apis/authorization.k8s.io/"), strings.HasPrefix(path, "/apis/authentication.k8s.io/"):
		return true
	}
	if group, ok := strings.CutPrefix(path, "/apis/"); ok {
		return strings.Count(strings.TrimSuffix(group, "/"), "/") <= 1
	}
	if version, ok := strings.CutPrefix(path, "/api/"); ok {
		name, _ := strings.CutPrefix(version, "v1/namespaces/")
		return !strings.Contains(name, "/") // a namespace, of which nobody says whether it is there
	}
	return false
}
