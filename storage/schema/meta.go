package schema

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/storage/config"
)

// maxAnnotations bounds the bytes of all annotations of an object, as in
// Kubernetes.
const maxAnnotations = 256 << 10

// ValidateMeta checks what every kind has alike: the name, the namespace, which
// must be there unless the kind is cluster-scoped and may not be if it is, and
// the syntax of labels and annotations. The error is a *multierror.Error of
// *FieldError that names every fault, or nil. Schema.Validate includes it.
func ValidateMeta(c *config.Config, clusterScoped bool) error {
	r := &report{}
	r.meta(c, clusterScoped)
	return r.faults.ErrorOrNil()
}

func (r *report) meta(c *config.Config, clusterScoped bool) {
	m := r.at("metadata")
	if c.Name == "" {
		m.at("name").fail("is missing: every object needs a name")
	} else {
		m.at("name").syntax(c.Name, validation.IsDNS1123Subdomain)
	}
	switch {
	case clusterScoped && c.Namespace != "":
		m.at("namespace").fail("%s has no namespace: leave it out", c.Kind)
	case !clusterScoped && c.Namespace == "":
		m.at("namespace").fail("is missing: every %s is in one", c.Kind)
	case !clusterScoped:
		m.at("namespace").syntax(c.Namespace, validation.IsDNS1123Label)
	}
	m.at("labels").labels(c.Labels)
	m.at("annotations").annotations(c.Annotations)
}

// syntax reports what a check of apimachinery finds.
func (c checker) syntax(value string, check func(string) []string) {
	for _, message := range check(value) {
		message, _, _ = strings.Cut(message, " (e.g.") // an example and a regular expression
		c.fail("%q is not valid: %s", value, message)
	}
}

// labels checks the syntax of labels and of the selectors made of them.
func (c checker) labels(labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		c.key(key).syntax(key, validation.IsQualifiedName)
		c.key(key).syntax(labels[key], validation.IsValidLabelValue)
	}
}

func (c checker) annotations(annotations map[string]string) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		c.key(key).syntax(strings.ToLower(key), validation.IsQualifiedName)
		size += len(key) + len(annotations[key])
	}
	if size > maxAnnotations {
		c.fail("are %d bytes together: %d is the limit", size, maxAnnotations)
	}
}
