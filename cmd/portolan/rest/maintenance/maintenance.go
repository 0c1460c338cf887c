package maintenance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// Path is the root of all paths of this package, and APIVersion the version of all its
// shapes.
const (
	Path       = "/apis/portolan.io/v1/store"
	APIVersion = "portolan.io/v1"
)

// Options holds the capabilities of a store. The server refuses nil ones.
type Options struct {
	Status    Reporter
	Snapshots Snapshotter
	Compactor Compactor
	// Defragmenter is set for a store that the server maintains.
	Defragmenter Defragmenter
	Quarantine   Quarantine
	Format       Formatter
	Members      Members
	Keys         Keyring
	// Sealing is nil for a server without secrets.
	Sealing Sealing
	// Authority is nil for a server without one.
	Authority Authority
	// Diagnostics is nil for a server that tells nothing of its process.
	Diagnostics *Diagnostics
	// Logs is nil for a server whose log levels stay.
	Logs Logs
}

// Register adds the paths to a config API that does not serve yet. Paths that read the
// whole store, change it, concern its members or tell of the process are Private.
func Register(api *rest.Server, o Options) {
	members := func(answer func(w http.ResponseWriter, r *http.Request) (any, error)) rest.EndpointFunc {
		return api.Private(o.membership(answer))
	}
	endpoint(api, StatusPath, methods{http.MethodGet: o.status})
	endpoint(api, SnapshotPath, methods{http.MethodGet: api.Private(o.snapshot)})
	endpoint(api, KeysPath, methods{http.MethodPost: api.Private(o.backupKeys)})
	endpoint(api, CompactPath, methods{http.MethodPost: api.Private(o.compact)})
	endpoint(api, DefragmentPath, methods{http.MethodPost: api.Private(o.defragment)})
	endpoint(api, QuarantinePath, methods{http.MethodGet: o.listQuarantine, http.MethodDelete: api.Private(o.discard)})
	endpoint(api, FormatPath, methods{http.MethodGet: o.format})
	endpoint(api, MembersPath, methods{http.MethodGet: members(o.listMembers), http.MethodPost: members(o.addMember)})
	endpoint(api, memberPath, methods{http.MethodDelete: members(o.removeMember)})
	endpoint(api, promotePath, methods{http.MethodPost: members(o.promoteMember)})
	if o.Sealing != nil {
		endpoint(api, SealingPath, methods{http.MethodGet: o.sealingStatus})
		endpoint(api, SealingKeysPath, methods{http.MethodGet: api.Private(o.sealingKeys), http.MethodPost: api.Private(o.addSealingKeys)})
		endpoint(api, ResealPath, methods{http.MethodPost: api.Private(o.reseal)})
		endpoint(api, SecretDataPath, methods{http.MethodGet: api.Private(o.secretData)})
	}
	if o.Logs != nil {
		endpoint(api, LogLevelsPath, methods{http.MethodGet: o.logLevels, http.MethodPost: api.Private(o.setLogLevels)})
	}
	if o.Authority != nil {
		endpoint(api, AuthorityPath, methods{http.MethodGet: o.authorityStatus, http.MethodPost: api.Private(o.beginAuthority)})
		endpoint(api, RotationPath, methods{http.MethodPost: api.Private(o.rotate)})
	}
	if o.Diagnostics != nil {
		o.Diagnostics.register(api)
	}
}

// methods are the endpoints of a path, by HTTP method.
type methods map[string]rest.EndpointFunc

// endpoint adds a path, which may have wildcards of http.ServeMux.
func endpoint(api *rest.Server, path string, m methods) {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	allow := strings.Join(names, ", ")
	api.Endpoint(path, func(w http.ResponseWriter, r *http.Request) error {
		answer, ok := m[r.Method]
		if !ok {
			return rest.NotAllowed(w, r, allow)
		}
		return answer(w, r)
	})
}

// unsupported refuses an operation that this store does not support, and says what to use
// instead.
func unsupported(what, instead string) error {
	return refusal.New(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		fmt.Sprintf("this server does not %s its store: %s", what, instead))
}

// leftToOwner begins a refusal that leaves an operation to the owner of the etcd.
const leftToOwner = "the store is an etcd that somebody else looks after: its owner does it with "

// typeMeta returns the kind and apiVersion of a shape of this package.
func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: APIVersion}
}
