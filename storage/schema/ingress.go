package schema

import (
	"net/netip"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portolan-mesh/portolan/storage/config"
)

// IngressClassAnnotation is the older way to name the class of an Ingress. It goes before
// spec.ingressClassName.
const IngressClassAnnotation = "kubernetes.io/ingress.class"

// IngressController is the spec.controller of the IngressClasses whose Ingresses have an effect.
// (Istio: IstioIngressController.)
const IngressController = "istio.io/ingress-controller"

func ingress() *Schema {
	backend := serve("service").refuse("resource", "is not supported: the backend of a path is a service")
	return definition[*networkingv1.IngressSpec]{
		kind: Ingress, plural: "ingresses", shortName: "ing",
		codec: config.JSON[networkingv1.IngressSpec](),
		served: serve("ingressClassName", "tls").with("defaultBackend", backend).
			with("rules", serve("host").with("http", fields{}.with("paths", serve("path", "pathType").with("backend", backend)))),
		check: checkIngressSpec,
	}.schema()
}

func ingressClass() *Schema {
	s := definition[*networkingv1.IngressClassSpec]{
		kind: IngressClass, plural: "ingressclasses",
		codec:  config.JSON[networkingv1.IngressClassSpec](),
		served: serve("controller").without("has no effect: the controller here takes no parameters", "parameters"),
		check: func(c checker, s *networkingv1.IngressClassSpec) {
			at := c.at("controller")
			at.required(s.Controller)
			if s.Controller != "" {
				at.syntax(s.Controller, func(name string) (out []string) {
					for _, err := range validation.IsDomainPrefixedPath(apifield.NewPath("controller"), name) {
						out = append(out, err.Detail)
					}
					return out
				})
			}
		},
	}.schema()
	s.ClusterScoped = true
	return s
}

// checkIngressSpec has the rules of a Kubernetes API server. (pkg/apis/networking/validation.)
func checkIngressSpec(c checker, s *networkingv1.IngressSpec) {
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		c.fail("has neither rules nor a defaultBackend: give it one of them")
	}
	if name := s.IngressClassName; name != nil {
		at := c.at("ingressClassName")
		at.syntax(*name, validation.IsDNS1123Subdomain)
		if annotation, both := c.report.object.Annotations[IngressClassAnnotation]; both {
			at.warn("has no effect: the annotation %s, which is %q, goes before it", IngressClassAnnotation, annotation)
		}
	}
	if s.DefaultBackend != nil {
		checkIngressBackend(c.at("defaultBackend"), s.DefaultBackend)
	}
	each(c.at("tls"), s.TLS, func(c checker, tls networkingv1.IngressTLS) {
		each(c.at("hosts"), tls.Hosts, checker.ingressHost)
		if tls.SecretName == "" {
			c.at("secretName").warn("is missing: no server terminates TLS for these hosts")
		} else {
			c.at("secretName").syntax(tls.SecretName, validation.IsDNS1123Subdomain)
		}
	})
	each(c.at("rules"), s.Rules, func(c checker, rule networkingv1.IngressRule) {
		if rule.Host != "" {
			c.at("host").ingressHost(rule.Host)
		}
		if rule.HTTP == nil {
			c.at("http").warn("is missing: the rule has no effect")
			return
		}
		if len(rule.HTTP.Paths) == 0 {
			c.at("http", "paths").fail("is missing: name a path, such as /")
		}
		each(c.at("http", "paths"), rule.HTTP.Paths, checkIngressPath)
	})
}

// ingressHost checks a host, or a wildcard for one label.
func (c checker) ingressHost(name string) {
	_, err := netip.ParseAddr(name)
	switch {
	case err == nil:
		c.fail("%q is an address: an Ingress is for names", name)
	case strings.HasPrefix(name, "*"):
		c.syntax(name, validation.IsWildcardDNS1123Subdomain)
	default:
		c.syntax(name, validation.IsDNS1123Subdomain)
	}
}

func checkIngressPath(c checker, p networkingv1.HTTPIngressPath) {
	at := c.at("path")
	switch kind := p.PathType; {
	case kind == nil:
		c.at("pathType").fail("is missing: use Exact, Prefix or ImplementationSpecific")
	case *kind == networkingv1.PathTypeExact, *kind == networkingv1.PathTypePrefix:
		if !strings.HasPrefix(p.Path, "/") {
			at.fail("must begin with a slash, is %q", p.Path)
		}
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, part) {
				at.fail("must not contain %s: proxies normalize paths before they compare them", part)
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, end) {
				at.fail("must not end with %s: proxies normalize paths before they compare them", end)
			}
		}
	default:
		c.at("pathType").oneOf(string(*kind), string(networkingv1.PathTypeExact), string(networkingv1.PathTypePrefix), string(networkingv1.PathTypeImplementationSpecific))
		if p.Path != "" && !strings.HasPrefix(p.Path, "/") {
			at.fail("must begin with a slash, is %q", p.Path)
		}
	}
	checkIngressBackend(c.at("backend"), &p.Backend)
}

func checkIngressBackend(c checker, b *networkingv1.IngressBackend) {
	switch {
	case b.Service == nil && b.Resource == nil:
		c.at("service").fail("is missing: name the service that answers")
	case b.Service != nil && b.Resource != nil:
		c.at("resource").fail("stands beside service: leave one of them out")
	}
	if b.Service == nil {
		return
	}
	at := c.at("service", "name")
	at.required(b.Service.Name)
	if b.Service.Name != "" {
		at.syntax(b.Service.Name, validation.IsDNS1035Label)
	}
	port := c.at("service", "port")
	switch of := b.Service.Port; {
	case of.Name != "" && of.Number != 0:
		port.fail("has a name and a number: leave one of them out")
	case of.Name != "":
		port.at("name").syntax(of.Name, validation.IsValidPortName)
	case of.Number == 0:
		port.fail("is missing: give its name or its number")
	default:
		if of.Number < 0 || of.Number > 65535 {
			port.at("number").fail("must be a port from 1 to 65535, is %d", of.Number)
		}
	}
}
