package schema

import (
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// discoverySelectors checks selectors of namespaces as Kubernetes checks a LabelSelector
// (k8s.io/apimachinery: ValidateLabelSelector).
func (c checker) discoverySelectors(selectors []*meshv1alpha1.LabelSelector) {
	each(c, selectors, func(c checker, s *meshv1alpha1.LabelSelector) {
		if len(s.GetMatchLabels())+len(s.GetMatchExpressions()) == 0 {
			c.warn("is empty and selects every namespace")
		}
		c.at("matchLabels").labels(s.GetMatchLabels())
		each(c.at("matchExpressions"), s.GetMatchExpressions(), checkLabelRequirement)
	})
}

func checkLabelRequirement(c checker, r *meshv1alpha1.LabelSelectorRequirement) {
	if r.GetKey() == "" {
		c.at("key").fail("is missing: name a label")
	} else {
		c.at("key").syntax(r.GetKey(), validation.IsQualifiedName)
	}
	switch metav1.LabelSelectorOperator(r.GetOperator()) {
	case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
		if len(r.GetValues()) == 0 {
			c.at("values").fail("must have at least one value with the operator %s", r.GetOperator())
		}
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if len(r.GetValues()) > 0 {
			c.at("values").fail("must be empty with the operator %s, is %s", r.GetOperator(), strings.Join(r.GetValues(), ", "))
		}
	default:
		c.at("operator").fail("%q is unknown: use In, NotIn, Exists or DoesNotExist", r.GetOperator())
	}
	each(c.at("values"), r.GetValues(), func(c checker, value string) { c.syntax(value, validation.IsValidLabelValue) })
}
