package serviceentry

import (
	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// HealthChecksAnnotation of a WorkloadEntry, if "true", keeps the workload out of use until it
// is reported healthy.
const HealthChecksAnnotation = health.ChecksAnnotation

// healthHandler takes over the health reports that the store keeps beside the objects.
func (s *Store) healthHandler(from, to *cache.Snapshot) {
	for change := range pmap.Diff(from.Health(), to.Health()) {
		if change.HasNew {
			s.setHealth(nameKey{change.New.Namespace, change.New.Name}, change.New)
		} else {
			s.setHealth(nameKey{change.Old.Namespace, change.Old.Name}, nil)
		}
	}
}

// SetHealth sets whether a WorkloadEntry is healthy. That matters only for those with
// HealthChecksAnnotation, which are unhealthy before. The health is kept until ForgetHealth,
// even if there is no such WorkloadEntry. Call it only on the worker.
func (s *Store) SetHealth(namespace, name string, healthy bool) {
	s.setHealth(nameKey{namespace, name}, &health.Report{Namespace: namespace, Name: name, Healthy: healthy})
}

// ForgetHealth removes what is known of the health of a WorkloadEntry. Call it only on the
// worker.
func (s *Store) ForgetHealth(namespace, name string) { s.setHealth(nameKey{namespace, name}, nil) }

// setHealth stores a report on the health of a WorkloadEntry; nil removes it.
func (s *Store) setHealth(key nameKey, report *health.Report) {
	if report == nil {
		s.health = s.health.Delete(key.path())
	} else {
		s.health = s.health.Set(key.path(), report)
	}
	if object := s.checked.Value(key.path()); object != nil {
		s.changeWorkloadEntry(key, object)
	}
}

// isChecked says whether a WorkloadEntry may be out of use: its health matters, or it is withdrawn.
func (s *Store) isChecked(object *config.Config) bool {
	_, withdrawn := health.Withdrawn(object.Annotations)
	return withdrawn || s.needsHealth(object)
}

func (s *Store) needsHealth(object *config.Config) bool {
	return health.Checked(object.Annotations) && !s.off.HealthChecks
}

// isHealthy says whether a WorkloadEntry is not withdrawn, and was reported healthy if that
// matters. A report on an earlier object of the same name does not count.
func (s *Store) isHealthy(object *config.Config) bool {
	if _, withdrawn := health.Withdrawn(object.Annotations); withdrawn || !s.needsHealth(object) {
		return !withdrawn
	}
	r := s.health.Value(nameKey{object.Namespace, object.Name}.path())
	return r != nil && r.Healthy && (r.UID == "" || r.UID == object.UID)
}
