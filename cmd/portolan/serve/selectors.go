package serve

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/url"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// meshSelectors are the discoverySelectors of the mesh configuration.
type meshSelectors struct {
	*selection.Selectors
	file *meshconfig.Config
	log  *slog.Logger
	last *config.Config // the object that they are of, nil for none
	some bool           // there was a configuration
}

func newMeshSelectors(file *meshconfig.Config, log *slog.Logger) *meshSelectors {
	return &meshSelectors{Selectors: selection.NewSelectors(), file: file, log: log}
}

// take takes the selectors of a configuration. It is called by one goroutine at a time.
func (m *meshSelectors) take(configs *cache.Snapshot) {
	object := mesh.MeshConfigOf(configs, m.file.GetRootNamespace())
	if m.some && object == m.last {
		return
	}
	m.last, m.some = object, true
	if err := m.Set(mesh.MeshConfigAt(m.file, configs).GetDiscoverySelectors()); err != nil {
		m.log.Warn("selectors of namespaces cannot be read: the last ones that could be still count", "err", err)
	}
}

// savedNamespaces are the Namespaces of clusters as sources whose last content is saved: a server that
// starts without them goes by their last labels. One goroutine uses it.
type savedNamespaces map[string]*namespaceSource // by the names of their clusters

// of returns the sources for clusters, one for those of one name.
func (n savedNamespaces) of(clusters []*cluster.Cluster) (out []lastknown.Source) {
	there := map[string]bool{}
	for _, c := range clusters {
		name := c.Name()
		if there[name] {
			continue
		}
		there[name] = true
		if n[name] == nil {
			n[name] = &namespaceSource{}
		}
		n[name].cluster = c
		out = append(out, n[name])
	}
	maps.DeleteFunc(n, func(name string, _ *namespaceSource) bool { return !there[name] })
	return out
}

// connections returns the connections to all clusters.
func (s *server) connections() (out []*cluster.Cluster) {
	for _, ref := range slices.Sorted(maps.Keys(s.clusters)) {
		out = append(out, s.clusters[ref])
	}
	return append(out, s.kubernetes.Connections()...)
}

// namespaceSource is the Namespaces of a cluster.
type namespaceSource struct {
	cluster *cluster.Cluster
	saved   savedItems[*selection.Namespace]
}

func namespacesOf(cluster string) string { return "namespaces/" + url.PathEscape(cluster) }

// SourceName implements lastknown.Source.
func (n *namespaceSource) SourceName() string { return namespacesOf(n.cluster.Name()) }

// savedNamespace is a Namespace as an item of what is saved.
type savedNamespace selection.Namespace

// Value implements lastknown.Item.
func (n *savedNamespace) Value() ([]byte, error) { return json.Marshal((*selection.Namespace)(n)) }

// Known implements lastknown.Source. Nothing is known without selectors, and what was saved stays.
func (n *namespaceSource) Known() (lastknown.Known, bool) {
	now, until, ok := n.cluster.Namespaces()
	if !ok {
		return lastknown.Known{}, false
	}
	return lastknown.Known{Until: until, Items: n.saved.of(now, func(o *selection.Namespace) lastknown.Item { return (*savedNamespace)(o) })}, true
}

// recallNamespaces returns the Namespaces that were saved of a cluster.
func (s *server) recallNamespaces(ctx context.Context, cluster string) (map[string]*selection.Namespace, error) {
	recalled, err := lastknown.In(s.configs, nil).Recall(ctx, namespacesOf(cluster))
	if err != nil {
		return nil, err
	}
	out := map[string]*selection.Namespace{}
	for name, value := range recalled.Items {
		one := &selection.Namespace{}
		if err := json.Unmarshal(value, one); err != nil {
			s.selectors.log.Warn("a namespace that was saved of a cluster is left out", "cluster", cluster, "namespace", name, "err", err)
			continue
		}
		out[name] = one
	}
	return out, nil
}
