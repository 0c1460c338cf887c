package serve

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// addProgress creates the reporter, which tells the other servers about this server's proxies.
func (s *server) addProgress() error {
	former, err := s.formerRuns()
	if err != nil {
		return err
	}
	s.reporter = &progress.Reporter{
		Former: former,
		ID:     s.id,
		Client: s.store.client, Board: s.configs, Statuses: s.statusCache, Server: s.xds, Registrations: s.registrar, Beside: s.beside, Logger: s.log(loglevel.XDS),
	}
	if err := s.noteRun(s.reporter.ID); err != nil {
		return err
	}
	if err := s.metrics.Register(s.beside); err != nil {
		return err
	}
	return s.proxies.setReplicas(replicas{s.reporter.ID, s.statusCache}, s.metrics)
}

// runFile has the id of the server that last ran on the data directory.
const runFile = "portolan.run"

// formerRuns says which other servers are known to have ended: all where nobody else can reach the
// store, also those of a restored backup; else the one that last ran on the data directory, which
// one server at a time can use.
func (s *server) formerRuns() (func(id string) bool, error) {
	switch {
	case s.o.Embedded == nil:
		return nil, nil
	case s.o.Embedded.Cluster == nil:
		return func(string) bool { return true }, nil
	}
	last, err := os.ReadFile(filepath.Join(s.o.Embedded.DataDir, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return func(id string) bool { return id == string(last) }, err
}

func (s *server) noteRun(id string) error {
	if s.o.Embedded == nil {
		return nil
	}
	return os.WriteFile(filepath.Join(s.o.Embedded.DataDir, runFile), []byte(id), 0o600)
}

// publishing creates the follower of objects from sources other than the store. It returns the
// function that the xDS server calls when it publishes a snapshot, nil if there are no such
// sources.
func (s *server) publishing() func(*cache.Snapshot) {
	s.beside = &beside.Sources{}
	if s.sources == nil {
		return nil
	}
	s.beside.States, s.beside.Newest = s.sourceStates, s.sources.Snapshot
	return s.beside.Follow
}

// sourceStates returns the states of the sources other than the store, for the other servers.
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

// facts returns what all servers report, nil until this server has read it.
func (s *server) facts() *statuses.Reports {
	facts, _ := s.statusCache.Reports()
	return facts
}

// view returns how far changes have come, as this server sees it.
func (s *server) view() *progress.View {
	return &progress.View{ID: s.reporter.ID, Server: s.xds, Statuses: s.statusCache, Beside: s.beside,
		Phases: func() []string { return phasesOf(s.xds.Context()) }}
}

// reportNow returns what became of an object, as this server knows it now.
func (s *server) reportNow(object *config.Config, stored *status.Report) *status.Report {
	return s.view().Report(object, stored, s.verdicts.Index().Of(object.Key()))
}
