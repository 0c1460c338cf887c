package rest

import (
	"maps"

	"github.com/portolan-mesh/portolan/storage/config"
)

// withOrigin returns an object with the annotation that names its source; the object
// itself if that is the store.
func (s *Server) withOrigin(object *config.Config) *config.Config {
	if object.Source == "" {
		return object
	}
	out := *object
	out.Annotations = maps.Clone(object.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[config.SourceAnnotation] = s.originOf(object)
	return &out
}

// withoutOrigin drops the annotation from an object that a client sent.
func withoutOrigin(object *config.Config) {
	if _, there := object.Annotations[config.SourceAnnotation]; there {
		delete(object.Annotations, config.SourceAnnotation)
		if len(object.Annotations) == 0 {
			object.Annotations = nil
		}
	}
}
