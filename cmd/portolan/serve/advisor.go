package serve

import (
	"fmt"
	"strings"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
)

// advisor gives the verdicts on operations, and tells whose proxies they give other labels. It adds
// to the findings what is wrong with the sources.
type advisor struct {
	*index.Keeper
	xds    *xds.DiscoveryServer
	unread func() []finding.Finding
}

// Findings implements rest.Advisor.
func (a advisor) Findings(ops []storage.Op) (finding.List, bool) {
	list, known := a.Keeper.Findings(ops)
	if known {
		list.Items = append(list.Items, a.unread()...)
	}
	return list, known
}

// maxReclassed limits the proxies that are named for one batch.
const maxReclassed = 20

// Advise implements rest.Advisor.
func (a advisor) Advise(ops []storage.Op) [][]finding.Advice {
	out := a.Keeper.Advise(ops)
	all := a.xds.Reclassed(ops)
	for i, r := range all {
		text := fmt.Sprintf("the proxy %s at its address is connected, and goes by the labels and the locality of the entry: %s", r.Proxy.Name, differences(r.Before, r.After))
		if i == maxReclassed {
			text = fmt.Sprintf("%d more connected proxies go by the labels and localities of such entries", len(all)-i)
		}
		out[r.Op] = append(out[r.Op], finding.Advice{Text: text, Severity: "info"})
		if i == maxReclassed {
			break
		}
	}
	return out
}

// attachedKinds says what the names are of those kinds of class whose names are no paths of
// objects.
var attachedKinds = map[class.Kind]func(name string) string{
	class.Trait:  func(name string) string { return "preferences by " + name },
	class.Source: func(name string) string { return "routes for the source labels " + name },
	class.Client: func(name string) string { return "DestinationRules for clients with " + name },
	class.Patch: func(name string) string {
		path, index, one := strings.Cut(name, "#")
		key, ok := config.KeyOfPath(path)
		switch {
		case !ok:
			return name
		case one:
			return fmt.Sprintf("configPatches[%s] of %s", index, key)
		}
		return key.String()
	},
}

// attachedName returns what attaches to a proxy, for people: the object with the path that is its
// name, or what its kind says.
func attachedName(kind class.Kind, name string) string {
	if words := attachedKinds[kind]; words != nil {
		return words(name)
	}
	if key, ok := config.KeyOfPath(name); ok {
		return key.String()
	}
	return name
}

// differences says what attaches after a change and did not before, and the reverse.
func differences(before, after class.Attached) string {
	var parts []string
	add := func(has, lacks class.Attached, how string) {
		for kind := class.FirstKind; kind <= class.LastKind; kind++ {
			for name := range has.Names(kind) {
				if !lacks.Has(kind, name) {
					parts = append(parts, attachedName(kind, name)+" "+how)
				}
			}
		}
	}
	add(after, before, "will apply to it")
	add(before, after, "will not any more")
	return strings.Join(parts, ", ")
}
