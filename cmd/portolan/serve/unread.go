package serve

import (
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// behind warns of each source beside the store that cannot be read as it is now.
func (s *server) behind() (out []string) {
	if s.sources == nil {
		return nil
	}
	for _, of := range s.sources.States() {
		if of.Err != nil {
			out = append(out, fmt.Sprintf("source %s cannot be read as it is now, so what is shown of it may be old or missing: %v", of.Name, of.Err))
		}
	}
	return out
}

// unreadSources returns a finding for each source that cannot be read as it is now, and for each
// that has what is not served as it stands there.
func (s *server) unreadSources() (out []finding.Finding) {
	const unread = "cannot be read as it is now, so what is found may be wrong: "
	find := func(source, message, remedy string) {
		out = append(out, finding.Finding{
			Code: string(verdict.SourceUnread), Severity: verdict.SourceUnread.Severity().String(),
			Object:  finding.Object{APIVersion: maintenance.APIVersion, Kind: finding.SourceKind, Name: source},
			Message: message, Remedy: remedy,
		})
	}
	refused := s.refusedBySource()
	for _, of := range s.sourceList().Items {
		see := "see portolan source describe " + of.Name
		switch {
		case len(of.Details) > 0: // the sum of these says where they are
			find(of.Name, unread+of.Problem, "")
		case of.Problem != "":
			find(of.Name, unread+of.Problem, see)
		}
		if n := refused[of.Name]; n > 0 {
			find(of.Name, fmt.Sprintf("has what is not served as it stands there: %d", n), see)
		}
	}
	return out
}

// refusedBySource returns how many objects of each source are not served as they stand there.
func (s *server) refusedBySource() map[string]int {
	out := map[string]int{}
	if s.sources != nil {
		for _, of := range s.sources.Statuses() {
			out[of.Name] = refusedIn(of)
		}
	}
	for _, of := range s.kubeSecrets.Status() {
		out[clusterSecrets+of.Cluster] = countRefused(of.Problems)
	}
	return out
}

func refusedIn(source aggregate.Status) int { return countRefused(problemsIn(source)) }

func countRefused(problems []cache.Problem) int {
	return len(slices.DeleteFunc(slices.Clone(problems), func(p cache.Problem) bool { return p.Warning }))
}
