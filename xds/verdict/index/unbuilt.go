package index

import (
	"fmt"
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// unbuilt has the messages of what servers could not build, by the path of an object behind it.
// It is never modified.
type unbuilt map[string][]string

// followUnbuilt derives unbuilt from the reports of the servers. It reads all reports, since
// servers are few and a report names few resources.
func followUnbuilt(was unbuilt, from, to verdict.Facts) unbuilt {
	if from.Replicas == to.Replicas {
		return was
	}
	now := unbuilt{}
	for r := range to.Replicas.Values() {
		for _, p := range r.Problems {
			if !isUnbuilt(p) {
				continue
			}
			for _, path := range p.Objects {
				if text := p.Type + " " + p.Message; !slices.Contains(now[path], text) {
					now[path] = append(now[path], text)
				}
			}
		}
	}
	for _, texts := range now {
		slices.Sort(texts)
	}
	return now
}

// isUnbuilt reports whether a problem is a resource that a server could not build.
func isUnbuilt(p status.Problem) bool { return p.Node == "" && p.Rejected }

// reportedAnew iterates over the objects about which servers report something else.
func reportedAnew[T comparable](from, to map[string][]T) iter.Seq[string] {
	return func(yield func(string) bool) {
		for path, texts := range to {
			if !slices.Equal(texts, from[path]) && !yield(path) {
				return
			}
		}
		for path := range from {
			if _, still := to[path]; !still && !yield(path) {
				return
			}
		}
	}
}

// addVerdicts adds a verdict for each message about the object.
func (u unbuilt) addVerdicts(j *verdict.Judge, object *config.Config) {
	for _, text := range u[object.Key().Path()] {
		j.Add(verdict.Verdict{
			Code: verdict.NotBuilt, Message: fmt.Sprintf("cannot be made a resource of, and proxies keep its last good form: %s", text),
			Remedy: "portolan rollback helps at once; report it",
		})
	}
}

// withoutReports returns the facts without reports: nobody has built hypothetical ones.
func withoutReports(f verdict.Facts) verdict.Facts {
	f.Replicas = pmap.Map[*status.Replica]{}
	return f
}
