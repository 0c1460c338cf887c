package fleet

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/integration/load/raw"
)

// digest is what a proxy needs to know of a response, independent of the stream. Equal
// responses share a digest as long as it is kept. It is never modified.
type digest struct {
	typeURL string
	// names of the resources in it, and removed names.
	names, removed []string
	// versions of the resources in it, in delta.
	versions []string
	// children are, for each of names, what a proxy requests because of the resource; only of
	// clusters and listeners.
	children [][]string
	// hosts means that a route configuration in it uses VHDS.
	hosts bool
	// second is the digest of the same response with the children of secondChildOf. It is nil if
	// there are none.
	second *digest
}

// digests keeps the digests of recent responses.
type digests struct {
	at   fields
	seed maphash.Seed

	mu   sync.Mutex // guards the fields below
	seen map[digestKey]*digest
}

type digestKey struct {
	typeURL string
	sum     uint64
	size    int
}

// keptDigests limits the number of digests that are kept.
const keptDigests = 512

func newDigests(at fields) *digests {
	return &digests{at: at, seed: maphash.MakeSeed(), seen: map[digestKey]*digest{}}
}

// digestOf returns the digest of a response. The first caller with some content computes it, and
// others wait: they probably have the same.
func (d *digests) digestOf(r response) (*digest, error) {
	key := d.key(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.seen[key]; known != nil {
		return known, nil
	}
	made, err := d.read(r)
	if err != nil {
		return nil, err
	}
	if len(d.seen) >= keptDigests {
		clear(d.seen)
	}
	d.seen[key] = made
	return made, nil
}

// key returns a key without what differs between streams.
func (d *digests) key(r response) digestKey {
	var h maphash.Hash
	h.SetSeed(d.seed)
	size := 0
	_ = raw.Each(r.bytes, func(n protowire.Number, content []byte) { // no error: it was parsed before
		if n == d.at.resources || n == d.at.removed {
			_, _ = h.Write(content)
			_ = h.WriteByte(byte(n))
			size += len(content)
		}
	})
	return digestKey{r.typeURL, h.Sum64(), size}
}

func (d *digests) read(r response) (*digest, error) {
	out := &digest{typeURL: r.typeURL}
	err := raw.Each(r.bytes, func(n protowire.Number, content []byte) {
		switch n {
		case d.at.resources:
			out.add(d.entry(content))
			if d.at.entryVersion != 0 {
				out.versions = append(out.versions, string(raw.Field(content, d.at.entryVersion)))
			}
		case d.at.removed:
			out.removed = append(out.removed, intern(content))
		}
	})
	if second := out.second; second != nil {
		second.names, second.removed, second.versions = out.names, out.removed, out.versions
	}
	return out, err
}

// entry parses an entry of resources. In state of the world it is the Any of the resource. The
// name is in the first field of the resource, as in every Envoy type.
func (d *digests) entry(content []byte) (name, body []byte) {
	if d.at.body == 0 {
		body = anyValue(content)
		return raw.Field(body, 1), body
	}
	return raw.Field(content, d.at.name), anyValue(raw.Field(content, d.at.body))
}

// anyValue returns the content of a google.protobuf.Any.
func anyValue(wrapped []byte) []byte { return raw.Field(wrapped, 2) }

func (g *digest) add(name, body []byte) {
	own := intern(name)
	g.names = append(g.names, own)
	switch g.typeURL {
	case ClusterType:
		g.children = append(g.children, endpointsOf(own, body))
		g.addSecond(secretsOf(body))
	case ListenerType:
		routes, filters := neededByListener(body)
		g.children = append(g.children, routes)
		g.addSecond(filters)
	case RouteType:
		g.hosts = g.hosts || raw.Field(body, 9) != nil // vhds
	}
}

// addSecond adds what the last resource makes a proxy request of the second type.
func (g *digest) addSecond(children []string) {
	if len(children) > 0 && g.second == nil {
		g.second = &digest{typeURL: g.typeURL}
	}
	if g.second != nil {
		for len(g.second.children) < len(g.names)-1 {
			g.second.children = append(g.second.children, nil)
		}
		g.second.children = append(g.second.children, children)
	}
}

// tlsContext ends the type URL of the transport socket of a cluster that originates TLS.
var tlsContext = []byte("UpstreamTlsContext")

// secretsOf returns the names of the secrets that the transport sockets of a cluster use. It
// does not decode the cluster: there are many, each proxy has some of its own, and the client
// would be slower than the server.
func secretsOf(cluster []byte) []string {
	if !bytes.Contains(cluster, tlsContext) {
		return nil
	}
	var out []string
	_ = raw.Each(cluster, func(n protowire.Number, content []byte) { // no error: it was parsed before
		switch n {
		case 24: // transport_socket
			out = append(out, secretsOfSocket(content)...)
		case 43: // transport_socket_matches
			out = append(out, secretsOfSocket(raw.Field(content, 3))...) // transport_socket
		}
	})
	return out
}

// secretsOfSocket returns the names of the secrets that a transport socket uses.
func secretsOfSocket(socket []byte) []string {
	config := raw.Field(socket, 3) // typed_config
	if !bytes.HasSuffix(raw.Field(config, 1), tlsContext) {
		return nil
	}
	common := raw.Field(anyValue(config), 1) // common_tls_context
	var out []string
	_ = raw.Each(common, func(n protowire.Number, content []byte) { // no error: it was parsed before
		switch n {
		case 6, 7: // tls_certificate_sds_secret_configs, validation_context_sds_secret_config
		case 8: // combined_validation_context
			content = raw.Field(content, 2) // validation_context_sds_secret_config
		default:
			return
		}
		if name := raw.Field(content, 1); len(name) > 0 {
			out = append(out, intern(name))
		}
	})
	return out
}

// endpointsOf returns the name of the endpoints of an EDS cluster: the service name of its EDS
// config, else its own name.
func endpointsOf(name string, cluster []byte) []string {
	eds := raw.Field(cluster, 3) // eds_cluster_config, which only EDS clusters have
	if eds == nil {
		return nil
	}
	if service := raw.Field(eds, 2); len(service) > 0 {
		return []string{intern(service)}
	}
	return []string{name}
}

// neededByListener returns the names of the route configurations that the connection managers of
// a listener request, and of the filters whose configuration is a resource of its own.
func neededByListener(listener []byte) (routes, filters []string) {
	_ = raw.Each(listener, func(n protowire.Number, chain []byte) {
		if n != 3 && n != 25 { // filter_chains, default_filter_chain
			return
		}
		_ = raw.Each(chain, func(n protowire.Number, filter []byte) {
			if n != 3 { // filters
				return
			}
			filters = appendDiscovered(filters, filter)
			manager := managerOf(raw.Field(filter, 4))                      // typed_config
			if name := raw.Field(raw.Field(manager, 3), 2); len(name) > 0 { // rds, route_config_name
				routes = append(routes, intern(name))
			}
			_ = raw.Each(manager, func(n protowire.Number, filter []byte) {
				if n == 5 { // http_filters
					filters = appendDiscovered(filters, filter)
				}
			})
		})
	})
	return routes, filters
}

// appendDiscovered appends the name of a filter, if its configuration is a resource of its own.
// Chains share such filters.
func appendDiscovered(to []string, filter []byte) []string {
	if raw.Field(filter, 5) == nil { // config_discovery
		return to
	}
	name := intern(raw.Field(filter, 1))
	if slices.Contains(to, name) {
		return to
	}
	return append(to, name)
}

const connectionManager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// managerOf returns the connection manager in a typed_config, nil if it is something else.
func managerOf(config []byte) []byte {
	if string(raw.Field(config, 1)) != connectionManager {
		return nil
	}
	return anyValue(config)
}

// intern keeps one copy of a name for all proxies.
func intern(name []byte) string { return unique.Make(string(name)).Value() }
