package rest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// A restored WorkloadEntry comes with the condition Healthy of its status: as the report of its health,
// in the transaction that creates it. So a machine that gets traffic elsewhere gets it here at once.

// restoredHealth returns the health in the status of a restored object, nil for none.
func (b *batchCall) restoredHealth(i int, read reading) *health.Report {
	if read.status == nil || !isKind(read.object.GroupVersionKind, schema.WorkloadEntry) {
		return nil
	}
	all := conditionsOf(read.status).GetConditions()
	if health.FromConditions(all) == nil {
		return nil
	}
	one := health.In(all)
	return readHealth(one, objectField(i, fmt.Sprintf("status.conditions[%d]", slices.Index(all, one))), &b.faults)
}

// healthOf says in the answer what became of the health of restored objects. An object that exists and has
// no report yet gets that of its status now, except in a dry run.
func (b *batchCall) healthOf(answer *batch.Result, results []storage.Result, dry bool) {
	for i, op := range b.ops {
		if op.Verb != storage.Restore || !isKind(op.Config.GroupVersionKind, schema.WorkloadEntry) {
			continue
		}
		note, warning := b.healthTaken(op, results[i], dry)
		answer.Results[i].Note = strings.Join(slices.DeleteFunc([]string{answer.Results[i].Note, note}, func(s string) bool { return s == "" }), "; ")
		if warning != "" {
			answer.Warnings = append(answer.Warnings, fmt.Sprintf("%s: %s", op.Target(), warning))
		}
	}
}

func (b *batchCall) healthTaken(op storage.Op, result storage.Result, dry bool) (note, warning string) {
	keeper, keeps := b.server.store.(storage.HealthKeeper)
	stored := b.before.Stored(op.Target())
	var known *health.Report
	if stored != nil {
		if r := b.before.Health().Value(health.Path(stored.Namespace, stored.Name)); r.Of(stored.UID) {
			known = r
		}
	}
	switch {
	case op.Health == nil && known == nil && health.Checked(op.Config.Annotations):
		return "", fmt.Sprintf("it gets no traffic until it is reported healthy: its status has no condition %s that is True or False", health.ConditionType)
	case op.Health == nil:
		return "", ""
	case !keeps:
		return "", fmt.Sprintf("the condition %s of its status is not taken over: this server keeps no health", health.ConditionType)
	case known != nil && (known.Unknown || known.Healthy != op.Health.Healthy):
		return "", fmt.Sprintf("it stays %s, as the store has it, and its status says %s: portolan patch --subresource=status changes it",
			healthWord(known), healthWord(op.Health))
	case known != nil:
		return "", ""
	case result.Outcome == storage.Created || dry:
	default:
		update := storage.HealthUpdate{Key: op.Target(), Report: op.Health}
		if stored != nil {
			update.UID = stored.UID
		}
		_, err := keeper.SetHealth(b.call.r.Context(), update)
		if err != nil {
			return "", fmt.Sprintf("the condition %s of its status was not taken over: %v", health.ConditionType, err)
		}
	}
	return healthWord(op.Health) + ", as its status says", ""
}

// healthWord says for people what a report says.
func healthWord(r *health.Report) string {
	switch {
	case r.Unknown:
		return "of unknown health"
	case r.Healthy:
		return "healthy"
	}
	return "unhealthy"
}
