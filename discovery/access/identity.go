package access

import (
	"net/url"
	"time"

	"github.com/portolan-mesh/portolan/storage/access"
)

// Identity is the user who sends a request.
type Identity struct {
	User   string
	Groups []string
	// Unproved says that only the origin of the request, this machine, identifies the
	// user. Private paths refuse such a user.
	Unproved bool
	// Until is when the proof expires, the zero time for never. Watches end then.
	Until time.Time
}

// Request is one action that a request wants to take. Outside the config API only Verb,
// the HTTP method in lower case, Path and Query are set.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection; Administer
	// for a Private path.
	Verb string
	// Group, Version and Resource (the plural) say which kind; Namespace and Name which
	// objects, empty for all. Subresource is status if the request is about nothing else
	// of them.
	Group, Version, Resource, Namespace, Name, Subresource string
	// Path is the path of the URL. Query has its parameters; it is not set in the config
	// API.
	Path  string
	Query url.Values
}

// Administer is the Verb of a second Request that a Private path needs, beside the Request
// for the method.
const Administer = access.Administer
