package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/ingressstatus"
	"github.com/portolan-mesh/portolan/storage/status"
)

// withStatus returns an object as clients see it: with its status, which only this function
// adds. Its resourceVersion is the greatest revision of its parts. That of an object of another
// source, which has no revision, names each part (withPart). A nil object stays nil.
func withStatus(from *cache.Snapshot, object *config.Config) *config.Config {
	if object == nil {
		return nil
	}
	report := from.Statuses().Value(object.Key().Path())
	return withReport(withComparedStatus(from, object), judged(from, object, report))
}

// judged returns what is said of an object as it was last written, given a report on it.
func judged(from *cache.Snapshot, object *config.Config, report *status.Report) *status.Report {
	if !from.Judged() { // no server writes conditions
		return report
	}
	return current(report, object)
}

// withComparedStatus returns an object with the parts of its status that the store compares, and
// with the version that it compares (storage.Op.Served).
func withComparedStatus(from *cache.Snapshot, object *config.Config) *config.Config {
	switch {
	case object == nil:
		return nil
	case isKind(object.GroupVersionKind, schema.WorkloadEntry):
		return withHealth(object, from.Health().Value(health.Path(object.Namespace, object.Name)))
	case isKind(object.GroupVersionKind, schema.ServiceEntry):
		return withAddresses(object, from)
	case isKind(object.GroupVersionKind, schema.Namespace):
		return withPhase(object)
	}
	return object
}

// current returns the conditions of an object as it was last written. If no report covers
// that write, they say only that this server has seen the object.
func current(r *status.Report, object *config.Config) *status.Report {
	if r.About(object) {
		return r
	}
	own, known := object.Revision()
	out := status.Report{UID: object.UID, Object: own, Generation: object.Generation, Conditions: status.Unjudged(own)}
	if !known {
		out.Version, out.Conditions = object.ResourceVersion, status.UnjudgedIn(object.Source)
	}
	out.Clients = r.ClientsOf(object.UID)
	if !r.Of(object.UID) {
		return &out
	}
	out.Revision, out.Addresses = r.Revision, r.Addresses
	for _, before := range r.Conditions {
		if before.Type == status.Accepted && before.Status == status.True {
			out.Conditions[0].Since = before.Since
		}
	}
	return &out
}

// withReport returns an object from withComparedStatus with the conditions that servers report,
// and then those that clients do.
func withReport(object *config.Config, r *status.Report) *config.Config {
	clients := r.ClientsOf(object.UID)
	if !r.Of(object.UID) {
		if clients == nil {
			return object
		}
		r = &status.Report{}
	}
	out := *object
	latest := r.Revision
	if clients != nil {
		latest = max(latest, clients.Revision)
	}
	switch own, known := object.Revision(); {
	case !known && latest > 0:
		out.ResourceVersion = withPart(object, strconv.FormatInt(latest, 10))
	case known && latest > own:
		out.ResourceVersion = strconv.FormatInt(latest, 10)
	}
	conditions := make([]*metav1alpha1.IstioCondition, len(r.Conditions))
	for i, c := range r.Conditions {
		conditions[i] = shownCondition(c)
	}
	if clients != nil {
		for _, c := range clients.Conditions {
			shown := shownCondition(c.Condition)
			shown.ObservedGeneration = c.Generation
			if !c.Probed.IsZero() {
				shown.LastProbeTime = timestamppb.New(c.Probed)
			}
			conditions = append(conditions, shown)
		}
	}
	switch status := object.Status.(type) {
	case *networking.ServiceEntryStatus: // never modify the parts shared with the snapshot
		out.Status = &networking.ServiceEntryStatus{Addresses: status.Addresses, Conditions: conditions, ObservedGeneration: r.Generation}
	case *metav1alpha1.IstioStatus:
		out.Status = &metav1alpha1.IstioStatus{Conditions: append(slices.Clip(status.Conditions), conditions...), ObservedGeneration: r.Generation}
	default:
		out.Status = statusOfKind(object.GroupVersionKind, conditions, r)
	}
	return &out
}

func shownCondition(c status.Condition) *metav1alpha1.IstioCondition {
	out := &metav1alpha1.IstioCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}
	if !c.Since.IsZero() {
		out.LastTransitionTime = timestamppb.New(c.Since)
	}
	return out
}

// statusOfKind returns the status of an object that has what a report says, and nothing else.
func statusOfKind(kind config.GroupVersionKind, conditions []*metav1alpha1.IstioCondition, r *status.Report) proto.Message {
	generation := r.Generation
	switch status := schema.NewStatus(kind).(type) {
	case *networking.ServiceEntryStatus:
		status.Conditions, status.ObservedGeneration = conditions, generation
		return status
	case *metav1alpha1.IstioStatus:
		status.Conditions, status.ObservedGeneration = conditions, generation
		return status
	case *ingressstatus.IngressStatus:
		status.Conditions, status.ObservedGeneration = conditions, generation
		status.LoadBalancer = ingressstatus.At(r.Addresses)
		return status
	}
	return nil
}

func isKind(k, of config.GroupVersionKind) bool { return k.Group == of.Group && k.Kind == of.Kind }

// withPart returns the version of an object of another source with a part of its status. It follows
// from what is served alone, so all servers have the same, and it is no number: nobody takes it for
// a revision of the store.
func withPart(object *config.Config, part string) string { return object.ResourceVersion + "-" + part }

// digestOf tells reports of health apart that have no revision.
func digestOf(r *health.Report) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v %v %q %q %v %v", r.Healthy, r.Unknown, r.Reason, r.Message, r.Since.UTC(), r.Probed.UTC()))
	return hex.EncodeToString(sum[:5])
}

// withHealth returns a WorkloadEntry with its reported health.
func withHealth(object *config.Config, r *health.Report) *config.Config {
	if !r.Of(object.UID) {
		return object
	}
	out := *object
	switch own, known := object.Revision(); {
	case !known:
		out.ResourceVersion = withPart(object, digestOf(r))
	case r.Revision > own:
		out.ResourceVersion = strconv.FormatInt(r.Revision, 10)
	}
	if !r.Unknown {
		out.Status = &metav1alpha1.IstioStatus{Conditions: []*metav1alpha1.IstioCondition{r.Condition()}}
	}
	return &out
}

// withAddresses returns a ServiceEntry with the addresses of its hosts. The transaction
// that writes the object writes them, so its version is its own.
func withAddresses(object *config.Config, from *cache.Snapshot) *config.Config {
	assigned := from.Addresses()
	if assigned.Len() == 0 {
		return object
	}
	status := &networking.ServiceEntryStatus{}
	for _, h := range address.Hosts(object) {
		if a := assigned.Value(address.Path(object.Namespace, h)); a != nil {
			for _, ip := range []netip.Addr{a.IPv4, a.IPv6} {
				status.Addresses = append(status.Addresses, &networking.ServiceEntryAddress{Value: ip.String(), Host: h})
			}
		}
	}
	if len(status.Addresses) == 0 {
		return object
	}
	out := *object
	out.Status = status
	return &out
}

// changes iterates over the objects whose served form differs between two snapshots, in
// key order.
func changes(from, to *cache.Snapshot) iter.Seq[pmap.Change[*config.Config]] {
	return func(yield func(pmap.Change[*config.Config]) bool) {
		beside := changedReports(from, to)
		tell := func(path string) bool {
			before, hadOld := from.Configs().Get(path)
			after, hasNew := to.Configs().Get(path)
			return yield(pmap.Change[*config.Config]{
				Key: path, Old: withStatus(from, before), New: withStatus(to, after), HasOld: hadOld, HasNew: hasNew,
			})
		}
		for change := range pmap.Diff(from.Configs(), to.Configs()) {
			for len(beside) > 0 && beside[0] < change.Key {
				if !tell(beside[0]) {
					return
				}
				beside = beside[1:]
			}
			if len(beside) > 0 && beside[0] == change.Key {
				beside = beside[1:]
			}
			if !tell(change.Key) {
				return
			}
		}
		for _, path := range beside {
			if !tell(path) {
				return
			}
		}
	}
}

// changedReports returns the paths, in order, of the objects whose status or health differs.
func changedReports(from, to *cache.Snapshot) []string {
	var paths []string
	for change := range pmap.Diff(from.Statuses(), to.Statuses()) {
		paths = append(paths, change.Key)
	}
	for change := range pmap.Diff(from.Health(), to.Health()) {
		r := change.New
		if r == nil {
			r = change.Old
		}
		paths = append(paths, config.Key{Kind: schema.WorkloadEntry, Namespace: r.Namespace, Name: r.Name}.Path())
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
