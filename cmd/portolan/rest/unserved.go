package rest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage"
)

// keepSpec returns the error of a write that would store security settings without
// effect yet, nil for none. The store returns the error only if the write creates the
// object or changes its spec. So an object that is already stored can be applied again,
// relabelled and deleted. A restore may store it too.
func (s *Server) keepSpec(op storage.Op) error {
	if s.acceptUnserved || op.Config == nil || op.Verb == storage.Restore {
		return nil
	}
	var found faults
	insecure, _ := s.schemas.Kind(op.Config.GroupVersionKind).UnservedSecurity(op.Config) // it is valid
	for _, f := range insecure {
		found.mayNotBe(f.Field, f.Message+" (leave it out; a server with --accept-unserved stores it, without effect)")
	}
	return found.error(op.Config.Key().String()+" is refused, since it is not as secure as it looks",
		metav1.StatusDetails{Name: op.Config.Name, Group: op.Config.Group, Kind: op.Config.Kind})
}
