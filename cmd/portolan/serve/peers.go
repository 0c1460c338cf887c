package serve

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/mcp"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
)

// PeerScheme begins the names of other control planes among the sources of configuration.
const PeerScheme = "xds://"

// peers returns the sources for the other control planes.
func (s *server) peers() ([]aggregate.Source, error) {
	var out []aggregate.Source
	for _, o := range s.o.ConfigPeers {
		o.Worker, o.Schemas, o.Domain = cache.NewWorker(), s.configs.Schemas(), s.o.Mesh.Domain
		o.HistoryMemory = s.o.HistoryMemory
		o.NodeName, o.Log, o.Registerer = nodeName(), s.log(loglevel.Cache), s.metrics
		c, err := mcp.New(o)
		if err != nil {
			return nil, err
		}
		name := PeerScheme + o.Address
		out = append(out, aggregate.Source{Name: name, Cache: c, Kind: "xds", Where: name})
	}
	return out, nil
}

// notInName matches characters that a node name must not have.
var notInName = regexp.MustCompile(`[^a-z0-9-]+`)

// nodeName returns the name by which other control planes distinguish this server.
func nodeName() string {
	host, _ := os.Hostname() // empty where the system does not know
	host = strings.Trim(notInName.ReplaceAllString(strings.ToLower(host), "-"), "-")
	return fmt.Sprintf("portolan-%s-%d", host, os.Getpid())
}
