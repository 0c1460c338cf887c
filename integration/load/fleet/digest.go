package fleet

import (
	"bytes"
	"hash/maphash"
	"sync"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/integration/load/raw"
)

// digest is what there is to know of a response, whoever it was sent to. Equal
// content has one digest, unless it was forgotten meanwhile. It is never
// modified.
type digest struct {
	typeURL string
	// names of what it carries, and removed of what it takes away.
	names, removed []string
	// versions are those of what it carries, in delta.
	versions []string
	// children are what a proxy asks for because of the resource at that place in
	// names; of clusters and listeners only.
	children [][]string
	// hosts says that a route configuration in it has its virtual hosts come by
	// themselves.
	hosts bool
	// secrets is of clusters, some of which use secrets: the same with these as
	// children. It is nil where none does.
	secrets *digest
}

// digests are those of the responses that came lately.
type digests struct {
	at   fields
	seed maphash.Seed

	mu   sync.Mutex // guards what follows
	seen map[digestKey]*digest
}

type digestKey struct {
	typeURL string
	sum     uint64
	size    int
}

// keptDigests bounds how many are known at one time.
const keptDigests = 512

func newDigests(at fields) *digests {
	return &digests{at: at, seed: maphash.MakeSeed(), seen: map[digestKey]*digest{}}
}

// of is the digest of a response. Of the first of its content it is made, while
// others wait: they are likely to have the same.
func (d *digests) of(r response) (*digest, error) {
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

// key leaves out what differs from stream to stream.
func (d *digests) key(r response) digestKey {
	var h maphash.Hash
	h.SetSeed(d.seed)
	size := 0
	_ = raw.Each(r.bytes, func(n protowire.Number, content []byte) { // it was read before
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
	return out, err
}

// entry takes an entry of resources apart. In state of the world it is the Any of
// the resource, whose name is in its first field, as in every type of Envoy's.
func (d *digests) entry(content []byte) (name, body []byte) {
	if d.at.body == 0 {
		body = anyValue(content)
		return raw.Field(body, 1), body
	}
	return raw.Field(content, d.at.name), anyValue(raw.Field(content, d.at.body))
}

// anyValue is what a google.protobuf.Any wraps.
func anyValue(wrapped []byte) []byte { return raw.Field(wrapped, 2) }

func (g *digest) add(name, body []byte) {
	own := intern(name)
	g.names = append(g.names, own)
	switch g.typeURL {
	case ClusterType:
		g.children = append(g.children, endpointsOf(own, body))
		g.addSecrets(secretsOf(body))
	case ListenerType:
		g.children = append(g.children, routesOf(body))
	case RouteType:
		g.hosts = g.hosts || raw.Field(body, 9) != nil // vhds
	}
}

// addSecrets notes the secrets of the resource that was added last.
func (g *digest) addSecrets(used []string) {
	if len(used) > 0 && g.secrets == nil {
		g.secrets = &digest{typeURL: g.typeURL}
	}
	if g.secrets != nil {
		g.secrets.names = g.names
		for len(g.secrets.children) < len(g.names)-1 {
			g.secrets.children = append(g.secrets.children, nil)
		}
		g.secrets.children = append(g.secrets.children, used)
	}
}

// tlsContext ends the type URL of the transport socket of a cluster that originates TLS.
var tlsContext = []byte("UpstreamTlsContext")

// secretsOf names the secrets that the transport socket of a cluster uses. There are many
// clusters, and each proxy has some of its own: a client that decoded them would be slower
// than the server.
func secretsOf(cluster []byte) []string {
	if !bytes.Contains(cluster, tlsContext) {
		return nil
	}
	socket := raw.Field(cluster, 24)          // transport_socket
	context := anyValue(raw.Field(socket, 3)) // typed_config: UpstreamTlsContext
	common := raw.Field(context, 1)           // common_tls_context
	var out []string
	_ = raw.Each(common, func(n protowire.Number, content []byte) { // it was read before
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

// endpointsOf names what a cluster has its endpoints by: where its type is EDS,
// the service name of its EDS config, else its own name.
func endpointsOf(name string, cluster []byte) []string {
	eds := raw.Field(cluster, 3) // eds_cluster_config, which no other type has
	if eds == nil {
		return nil
	}
	if service := raw.Field(eds, 2); len(service) > 0 {
		return []string{intern(service)}
	}
	return []string{name}
}

// routesOf names the route configurations that the connection managers of a
// listener ask for.
func routesOf(listener []byte) []string {
	var out []string
	_ = raw.Each(listener, func(n protowire.Number, chain []byte) {
		if n != 3 && n != 25 { // filter_chains, default_filter_chain
			return
		}
		_ = raw.Each(chain, func(n protowire.Number, filter []byte) {
			if n != 3 { // filters
				return
			}
			if name := routeOf(raw.Field(filter, 4)); len(name) > 0 {
				out = append(out, intern(name))
			}
		})
	})
	return out
}

const connectionManager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// routeOf is the route_config_name of the rds of a typed_config that is a
// connection manager.
func routeOf(config []byte) []byte {
	if string(raw.Field(config, 1)) != connectionManager {
		return nil
	}
	rds := raw.Field(anyValue(config), 3)
	if rds == nil {
		return nil
	}
	return raw.Field(rds, 2)
}

// intern keeps one copy of a name, however many proxies have it.
func intern(name []byte) string { return unique.Make(string(name)).Value() }
