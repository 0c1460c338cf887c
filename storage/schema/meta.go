package schema

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/storage/config"
)

// maxAnnotations bounds the bytes of all annotations of an object, as in
// Kubernetes.
const maxAnnotations = 256 << 10

// meta checks the metadata of any kind: the name, and the syntax of labels and
// annotations. A namespaced kind needs a namespace, and a cluster-scoped one must have
// none.
func (r *Report) meta(c *config.Config, clusterScoped bool) {
	m := r.at("metadata")
	if c.Name == "" && c.GenerateName != "" {
		m.at("name").fail("is missing: generateName is for a create by itself")
	} else if c.Name == "" {
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
	m.at("annotations").key(ProxyConfigAnnotation).misplaced(c)
	m.at("ownerReferences").owners(c.OwnerReferences)
}

// misplaced warns of an object with the annotation of a ProxyConfig, which belongs into the spec of a
// WorkloadGroup. The entries that a group makes have it from there.
func (c checker) misplaced(object *config.Config) {
	ofGroup := func(o metav1.OwnerReference) bool { return o.Kind == WorkloadGroup.Kind }
	if _, ok := object.Annotations[ProxyConfigAnnotation]; !ok || object.Kind == WorkloadEntry.Kind && slices.ContainsFunc(object.OwnerReferences, ofGroup) {
		return
	}
	switch object.Kind {
	case WorkloadGroup.Kind:
		c.warn("has no effect in metadata of the object: put it into spec.metadata.annotations, which is for the machines of the group")
	case WorkloadEntry.Kind:
		c.warn("has no effect on a WorkloadEntry: put it into spec.metadata.annotations of the machine's WorkloadGroup, or write a ProxyConfig that selects the machine by its labels")
	default:
		c.warn("has no effect on a %s: write a ProxyConfig that selects the proxies by their labels", object.Kind)
	}
}

// owners checks owner references as Kubernetes does.
func (c checker) owners(owners []metav1.OwnerReference) {
	controllers := 0
	each(c, owners, func(c checker, o metav1.OwnerReference) {
		c.at("apiVersion").required(o.APIVersion)
		c.at("kind").required(o.Kind)
		c.at("name").required(o.Name)
		c.at("uid").required(string(o.UID))
		if o.Controller != nil && *o.Controller {
			if controllers++; controllers > 1 {
				c.at("controller").fail("is true of another owner, too: only one controls an object")
			}
		}
	})
}

// syntax reports what a check of apimachinery finds.
func (c checker) syntax(value string, check func(string) []string) {
	for _, message := range check(value) {
		message, _, _ = strings.Cut(message, " (e.g.") // an example and a regular expression
		c.fail("%q is not valid: %s", value, message)
	}
}

func (c checker) labels(labels map[string]string) {
	for _, key := range sortedKeys(labels) {
		if c.full() {
			return
		}
		c.key(key).syntax(key, validation.IsQualifiedName)
		c.key(key).syntax(labels[key], validation.IsValidLabelValue)
	}
}

// A label with invalid syntax selects nothing, since nothing can have it.
func (c checker) selected(labels map[string]string) {
	for _, key := range sortedKeys(labels) {
		at, value := c.key(key), labels[key]
		switch {
		case c.full():
			return
		case key == "":
			at.fail("is missing: name a label")
		case strings.Contains(key+value, "*"):
			at.fail("has no wildcards: name the label and its value, is %q", key+"="+value)
		case strings.ContainsAny(key+value, "=,\x00"):
			at.fail("%q is not valid: a label has none of = , and no zero byte", key+"="+value)
		case len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) > 0:
			at.warn("%q cannot be a label: nothing has it", key+"="+value)
		}
	}
}

func (c checker) annotations(annotations map[string]string) {
	size := 0
	for _, key := range sortedKeys(annotations) {
		if c.full() {
			return
		}
		c.key(key).syntax(strings.ToLower(key), validation.IsQualifiedName)
		size += len(key) + len(annotations[key])
	}
	if size > maxAnnotations {
		c.fail("are %d bytes together: %d is the limit", size, maxAnnotations)
	}
}
