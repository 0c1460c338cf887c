package mesh

import (
	"cmp"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	spiffe "github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/probe"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
)

// ProbeRow is a probe that an object names. It is never modified.
type ProbeRow struct {
	Object config.Key
	Probe  *networking.ReadinessProbe
	// account is the service account of the workloads that it is for, if the object is a
	// WorkloadEntry.
	account string
}

// ProbesAt are the probes of a group, or of the WorkloadEntries at an address, by the path of the
// object.
type ProbesAt = pmap.Map[*ProbeRow]

// probes holds the probes of WorkloadGroups by their names, and those of annotated WorkloadEntries
// by their addresses.
type probes struct{ groups[*ProbeRow] }

var probeRows = probes{groupsOf[*ProbeRow](Probes)}

// The keys of the table.
func groupProbeKey(namespace, name string) string { return "group/" + namespace + "/" + name }

func entryProbeKey(namespace, network, address string) string {
	return "entry/" + namespace + "/" + network + "/" + address
}

func (t probes) follow(from, to *PushContext) {
	for _, path := range [...]string{workloadGroupPath, workloadEntryPath} {
		eachObject(from, to, path, func(c pmap.Change[*config.Config]) {
			before, old := probeOf(c.Old)
			after, row := probeOf(c.New)
			switch {
			case old != nil && row != nil && before == after && config.SameSpec(old.Probe, row.Probe) && old.account == row.account:
				return
			case old != nil:
				t.remove(to, before, c.Key)
			}
			if row != nil {
				t.add(to, after, c.Key, row)
			}
		})
	}
}

// probeOf returns the row of an object, with its key; nil if the object names no probe.
func probeOf(object *config.Config) (key string, row *ProbeRow) {
	if object == nil {
		return "", nil
	}
	row = &ProbeRow{Object: object.Key()}
	switch spec := object.Spec.(type) {
	case *networking.WorkloadGroup:
		key, row.Probe = groupProbeKey(object.Namespace, object.Name), spec.GetProbe()
	case *networking.WorkloadEntry:
		key, row.account = entryProbeKey(object.Namespace, spec.GetNetwork(), spec.GetAddress()), cmp.Or(spec.GetServiceAccount(), schema.DefaultServiceAccount)
		row.Probe, _ = probe.Of(object.Annotations) // validation refuses bad ones
	}
	if row.Probe.GetHealthCheckMethod() == nil {
		return "", nil
	}
	return key, row
}

// probeKeys returns the keys under which there may be a probe of the workload; empty in the view
// of a class.
func (v *View) probeKeys() string {
	w := v.workload
	switch {
	case w == nil:
		return ""
	case w.Group != "":
		return groupProbeKey(w.Namespace, w.Group)
	}
	var out []string
	for _, ip := range w.IPAddresses {
		out = append(out, entryProbeKey(w.Namespace, w.Network, ip))
	}
	return strings.Join(out, class.Separator)
}

// Probe returns the probe of the workload: that of the WorkloadGroup that it names, else the first
// of the WorkloadEntries at its addresses, in its namespace and network, whose service account it
// has not disproved. It returns nil for none, and in the view of a class.
func (v *View) Probe() *ProbeRow {
	keys := v.ask(Self, selfProbes, "").(string)
	if keys == "" {
		return nil
	}
	who, proved := spiffe.Identity{}, v.ask(Self, selfServes, "").(string)
	if proved != "" {
		var err error
		if who, err = spiffe.Parse(proved); err != nil {
			return nil
		}
	}
	for key := range strings.SplitSeq(keys, class.Separator) {
		for _, row := range v.ask(Probes, key, "").(ProbesAt).All() {
			if row.account == "" || proved == "" || who.Namespace == row.Object.Namespace && who.ServiceAccount == row.account {
				return row
			}
		}
	}
	return nil
}
