package store

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// agents counts the agents of connected proxies by version. It has none for a user who may not see
// the proxies.
func (e *environment) agents(ctx context.Context) (map[string]int, error) {
	list, err := e.Proxies(ctx, "")
	if apierrors.IsForbidden(err) {
		e.Warn([]string{"the versions of agents are not checked, as you may not see the proxies of all namespaces"})
		return nil, nil
	}
	return agentsOf(list.Items), err
}

// agentsOf counts each machine once, however many proxies its agent serves.
func agentsOf(proxies []progress.ProxyStatus) map[string]int {
	out, seen := map[string]int{}, map[string]bool{}
	for _, p := range proxies {
		if p.Machine != nil && p.Machine.Agent != "" && !seen[p.Node] {
			seen[p.Node] = true
			out[cli.Plain(p.Machine.Agent)]++
		}
	}
	return out
}

var releaseText = regexp.MustCompile(`^v?(\d+)\.(\d+)\.\d+$`)

// release returns the major and the minor version of a release; false for another build.
func release(version string) (major, minor int, ok bool) {
	parts := releaseText.FindStringSubmatch(version)
	if parts == nil {
		return 0, 0, false
	}
	major, one := strconv.Atoi(parts[1])
	minor, other := strconv.Atoi(parts[2])
	return major, minor, one == nil && other == nil
}

// describeAgents formats counts of agents, as in "2 of 1.4.0, 1 of 4a6bb4e1, not a release".
func describeAgents(agents map[string]int) string {
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(agents)) {
		part := fmt.Sprintf("%d of %s", agents[version], version)
		if _, _, ok := release(version); !ok {
			part += ", not a release"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "none is connected"
	}
	return strings.Join(parts, "; ")
}

// problemsOfAgents returns which releases of agents do not go with a server. An agent goes with
// servers of its minor version and of the next. Nothing is said about builds that are no release.
func problemsOfAgents(server string, agents map[string]int) (problems []string) {
	major, minor, ok := release(server)
	if !ok {
		return nil
	}
	for _, version := range slices.Sorted(maps.Keys(agents)) {
		ofMajor, ofMinor, ok := release(version)
		which := fmt.Sprintf("%s of version %s", cli.CountOf(agents[version], "agent"), version)
		switch {
		case !ok:
		case ofMajor > major || ofMajor == major && ofMinor > minor:
			problems = append(problems, fmt.Sprintf("%s: newer than the server (%s): upgrade the servers first", which, server))
		case ofMajor < major || ofMinor < minor-1:
			problems = append(problems, fmt.Sprintf("%s: more than one minor version older than the server (%s): upgrade portolan-agent on these machines; portolan proxy status names them", which, server))
		}
	}
	return problems
}
