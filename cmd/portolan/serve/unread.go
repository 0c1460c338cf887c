package serve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// behind warns of each source beside the store that may have the kind and cannot be read as it is now. It also
// warns of what is read and not served as it stands in its source. What is read is an object, or without a name
// those of a kind, in a namespace or in all.
func (s *server) behind(read config.Key) (out []string) {
	if s.sources == nil {
		return nil
	}
	for _, of := range s.sources.States() {
		reads := of.Cache.Schemas().Kind(read.Kind) != nil
		if reads && of.Err != nil {
			out = append(out, fmt.Sprintf("source %s cannot be read as it is now, so what is shown of it may be old or missing: %v", of.Name, of.Err))
		}
		var these []string
		unknown := 0
		for _, p := range refusedOf(problemsIn(of.Cache)) {
			switch {
			case !strings.Contains(p.Object, "/"): // no key
				unknown++
			case p.Object == read.String() || read.Name == "" && strings.HasPrefix(p.Object, read.String()): // "kind/namespace/"
				these = append(these, p.Object)
			}
		}
		see := "see portolan source describe " + of.Name
		switch {
		case len(these) > 0 && read.Name != "":
			out = append(out, fmt.Sprintf("source %s has %s in a form that is not served: %s", of.Name, read, see))
		case len(these) > 0:
			out = append(out, fmt.Sprintf("source %s has objects of the kind %s that are not served as they stand there (%d, such as %s): %s", of.Name, read.Kind.Kind, len(these), slices.Min(these), see))
		}
		if reads && unknown > 0 {
			out = append(out, fmt.Sprintf("source %s has what cannot be read, and may be any object (%d): %s", of.Name, unknown, see))
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

// refusedOf returns the problems of what is not served as it stands.
func refusedOf(problems []cache.Problem) []cache.Problem {
	return slices.DeleteFunc(slices.Clone(problems), func(p cache.Problem) bool { return p.Warning })
}
