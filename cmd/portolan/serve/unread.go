package serve

import (
	"fmt"

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
	for _, of := range s.sourceList().Items {
		see := "see portolan source describe " + of.Name
		switch {
		case len(of.Details) > 0: // the sum of these says where they are
			find(of.Name, unread+of.Problem, "")
		case of.Problem != "":
			find(of.Name, unread+of.Problem, see)
		}
		if of.Refused > 0 {
			find(of.Name, fmt.Sprintf("has what is not served as it stands there: %d", of.Refused), see)
		}
	}
	return out
}
