package table

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/text"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/ingressstatus"
)

// ingressColumns returns the columns of a cluster.
func ingressColumns(kind config.GroupVersionKind) []Column {
	if kind == schema.IngressClass {
		type spec = *networkingv1.IngressClassSpec
		return []Column{
			show("Controller", func(s spec, _ bool) string { return s.Controller }),
			show("Parameters", func(s spec, _ bool) string {
				if s.Parameters == nil {
					return ""
				}
				return strings.ToLower(s.Parameters.Kind) + "/" + s.Parameters.Name
			}),
		}
	}
	type spec = *networkingv1.IngressSpec
	return []Column{
		{Name: "Class", cell: ingressClassOf},
		show("Hosts", func(s spec, wide bool) string {
			var hosts []string
			for _, rule := range s.Rules {
				if rule.Host != "" {
					hosts = append(hosts, rule.Host)
				}
			}
			if len(hosts) == 0 {
				return "*"
			}
			return text.List(hosts, wide)
		}),
		{Name: "Address", cell: func(object *config.Config, wide bool) string {
			status, _ := object.Status.(*ingressstatus.IngressStatus)
			return text.List(status.Addresses(), wide)
		}},
		show("Ports", func(s spec, _ bool) string {
			if len(s.TLS) > 0 {
				return "80, 443"
			}
			return "80"
		}),
	}
}

func ingressClassOf(object *config.Config, _ bool) string {
	if class, annotated := object.Annotations[schema.IngressClassAnnotation]; annotated {
		return class
	}
	if s, ok := object.Spec.(*networkingv1.IngressSpec); ok && s.IngressClassName != nil {
		return *s.IngressClassName
	}
	return "<none>"
}
