package serve

import (
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/status"
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
		Client: s.store.client, Store: s.configs, Statuses: s.statusCache, Server: s.xds, Beside: s.beside, Logger: s.logger,
	}
	if err := s.metrics.Register(s.beside); err != nil {
		return err
	}
	return s.proxies.know(replicas{s.reporter.ID, s.statusCache}, s.metrics)
}

// publishing makes what follows the objects of sources other than the store as they are
// published. It returns what the server of proxies calls, nil where there are no such
// sources.
func (s *server) publishing() func(*cache.Snapshot) {
	s.beside = &beside.Sources{}
	if s.sources == nil {
		return nil
	}
	s.beside.States, s.beside.Newest = s.sourceStates, s.sources.Snapshot
	return s.beside.Follow
}

// sourceStates tells the other servers how the sources other than the store are.
func (s *server) sourceStates() []status.SourceState {
	var out []status.SourceState
	for _, state := range s.sources.States() {
		one := status.SourceState{Name: state.Name, Complete: state.Complete}
		if state.Err != nil {
			one.Problem = progress.Shorten(state.Err.Error(), progress.MaxMessage)
		}
		out = append(out, one)
	}
	return out
}

// facts are what all servers say, nil as long as this one has not read it.
func (s *server) facts() *statuses.Facts {
	facts, _ := s.statusCache.Facts()
	return facts
}

// view is how far changes have come, as this server sees it.
func (s *server) view() *progress.View {
	return &progress.View{ID: s.reporter.ID, Server: s.xds, Statuses: s.statusCache, Beside: s.beside}
}
