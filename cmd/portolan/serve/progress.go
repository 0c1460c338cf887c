package serve

import (
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/portolan-mesh/portolan/xds/progress"
)

// addProgress makes the reporter, which tells the other servers of the store of the
// proxies of this one. Its id is of this run: a server that is started again is another.
func (s *server) addProgress() error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the name of this machine: %w", err)
	}
	s.reporter = &progress.Reporter{
		ID:     fmt.Sprintf("%s:%d/%.8s", host, os.Getpid(), uuid.NewString()),
		Client: s.store.client, Store: s.configs, Statuses: s.statusCache, Server: s.xds, Logger: s.logger,
	}
	return s.proxies.know(replicas{s.reporter.ID, s.statusCache}, s.metrics)
}

// view is how far changes have come, as this server sees it.
func (s *server) view() *progress.View {
	return &progress.View{ID: s.reporter.ID, Server: s.xds, Statuses: s.statusCache}
}
