package schema

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/util/validation"

	networking "istio.io/api/networking/v1alpha3"
	istiotype "istio.io/api/type/v1beta1"
)

// Protocols as they are compared: in lower case.
const (
	protocolHTTP      = "http"
	protocolHTTP2     = "http2"
	protocolGRPC      = "grpc"
	protocolGRPCWeb   = "grpc-web"
	protocolHTTPProxy = "http_proxy"
	protocolTCP       = "tcp"
	protocolTLS       = "tls"
	protocolHTTPS     = "https"
	protocolUDP       = "udp"
)

// protocols lists the protocols that a port may declare.
func protocols() []string {
	return []string{protocolHTTP, protocolHTTP2, protocolGRPC, protocolGRPCWeb, protocolHTTPS, protocolTLS, protocolTCP,
		"mongo", "mysql", "redis", protocolUDP, protocolHTTPProxy}
}

// isDNSLabel says whether text is a label of a host name, of either case.
func isDNSLabel(s string) bool {
	if s == "" || len(s) > validation.DNS1123LabelMaxLength || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// hostName says what is wrong with a host name, fully qualified or short; a dot may end it.
func hostName(name string) error {
	if name == "" {
		return errors.New("is missing")
	}
	if len(name) > 255 {
		return fmt.Errorf("%q is longer than 255 bytes", name)
	}
	if strings.Contains(name, "*") {
		return fmt.Errorf(`%q is not a host name: a wildcard stands for whole labels in front, as in "*.example.com"`, name)
	}
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	for _, label := range labels {
		if !isDNSLabel(label) {
			return fmt.Errorf("%q is not a host name: its part %q is not letters, digits and inner hyphens, 63 at most", name, label)
		}
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("%q is not a host name: its last part is a number", name)
	}
	return nil
}

// hostPattern says what is wrong with a host name or pattern: "*" or
// "*.example.com". Istio warns of other wildcards in a ServiceEntry. Envoy refuses a
// listener that has one for the name of TLS clients, so they are refused here.
// https://github.com/envoyproxy/envoy/issues/11906
func hostPattern(pattern string) error {
	if pattern == "*" {
		return nil
	}
	if rest, ok := strings.CutPrefix(pattern, "*."); ok && rest != "" {
		return hostName(rest)
	}
	return hostName(pattern)
}

func isWildcard(host string) bool { return strings.HasPrefix(host, "*") }

func isIP(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Zone() == "" // a zone is of one machine
}

// shortName notes a short host name. The object gets one warning of all its short names, as users
// outside Kubernetes seldom mean what they stand for.
func (c checker) shortName(name string) {
	if name == "" || strings.Contains(name, ".") || isWildcard(name) || isIP(name) {
		return
	}
	if s := &c.report.short; len(s.names) == 0 {
		s.names, s.path = []string{name}, c.path()
	} else if !slices.Contains(s.names, name) && len(s.names) <= maxFindings {
		s.names = append(s.names, name)
	}
}

// shortNames are the short host names in an object.
type shortNames struct {
	path  string // of the first
	names []string
}

// warnOfShortNames warns of the short names that were noted.
func (r *Report) warnOfShortNames() {
	const shown = 3
	names, space := r.short.names, r.object.Namespace
	switch n := len(names); {
	case n == 1:
		r.warn(codeShortName, r.short.path, "%q is a short name and stands for %s.%s.svc in the domain of the mesh; write the full host name if you mean another", names[0], names[0], space)
	case n > 1:
		words := make([]string, min(n, shown))
		for i := range words {
			words[i] = strconv.Quote(names[i])
		}
		more := ""
		if n > shown {
			more = " and more"
		}
		r.warn(codeShortName, r.short.path, "and others: %s%s are short names and stand for hosts of the namespace, such as %s.%s.svc in the domain of the mesh; write the full host names if you mean others", strings.Join(words, ", "), more, names[0], space)
	}
}

// port checks a port number that must be set.
func (c checker) port(number uint32) {
	if number < 1 || number > 65535 {
		c.fail("must be a port from 1 to 65535, is %d", number)
	}
}

// optionalPort takes 0 for none.
func (c checker) optionalPort(number uint32) {
	if number != 0 {
		c.port(number)
	}
}

func (c checker) notNegative(n int32) {
	if n < 0 {
		c.fail("must not be negative, is %d", n)
	}
}

func (c checker) required(text string) {
	if text == "" {
		c.fail("is missing")
	}
}

// percentage checks a number from 0 to 100.
func (c checker) percentage(p float64) {
	if !(p >= 0 && p <= 100) { // false for NaN
		c.fail("must be from 0 to 100, is %v", p)
	}
}

// targeted is a policy for the workloads or the resources that it names.
type targeted interface {
	GetSelector() *istiotype.WorkloadSelector
	GetTargetRef() *istiotype.PolicyTargetReference
	GetTargetRefs() []*istiotype.PolicyTargetReference
}

// target checks what a policy applies to.
func (c checker) target(p targeted) {
	c.at("selector", "matchLabels").labels(p.GetSelector().GetMatchLabels())
	one, several := p.GetTargetRef(), p.GetTargetRefs()
	if p.GetSelector() != nil && (one != nil || len(several) > 0) {
		c.at("selector").fail("excludes targetRefs: set one of the two")
	}
	if one != nil && len(several) > 0 {
		c.at("targetRef").fail("excludes targetRefs: set one of the two")
	}
	if one != nil {
		c.at("targetRef").targetRef(one)
	}
	each(c.at("targetRefs"), several, checker.targetRef)
}

// targetRef checks a reference to a resource that a policy applies to. Istio knows the same
// kinds, but for Gateways of its own group, which stand for their selectors.
func (c checker) targetRef(ref *istiotype.PolicyTargetReference) {
	c.at("name").required(ref.GetName())
	if namespace := ref.GetNamespace(); namespace != "" && namespace != c.report.object.Namespace {
		c.at("namespace").fail("must be the namespace of the policy, %s, is %q", c.report.object.Namespace, namespace)
	}
	const gatewayAPI = "gateway.networking.k8s.io"
	groups := map[string][]string{
		"Service": {"", "core"}, "ServiceEntry": {networkingGroup}, "Gateway": {networkingGroup, gatewayAPI}, "GatewayClass": {gatewayAPI},
	}
	if allowed, ok := groups[ref.GetKind()]; !ok {
		c.at("kind").fail("must be one of Gateway, GatewayClass, Service, ServiceEntry, is %q", ref.GetKind())
	} else if !slices.Contains(allowed, ref.GetGroup()) {
		c.at("group").fail("must be %q for a %s, is %q", allowed[0], ref.GetKind(), ref.GetGroup())
	}
}

// oneLine checks a text that becomes a part of a request or of a response.
func (c checker) oneLine(text string) {
	const limit = 16384 // of Envoy, for a header and an attribute of a cookie
	if len(text) > limit {
		c.fail("has %d bytes: %d is the limit", len(text), limit)
	}
	if strings.ContainsAny(text, "\x00\r\n") {
		c.fail("must be one line of text")
	}
}

// oneOf checks a value that may be empty against a list.
func (c checker) oneOf(value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		c.fail("must be one of %s, is %q", strings.Join(allowed, ", "), value)
	}
}

// protocol checks the protocol of a port, in any case. The caller checks for an empty one.
func (c checker) protocol(p string) {
	if p != "" && !slices.Contains(protocols(), lower(p)) {
		c.fail("unknown protocol %q: use one of %s", p, strings.ToUpper(strings.Join(protocols(), ", ")))
	}
}

// maxDuration is a century: Envoy refuses a time that is thrice as long.
const maxDuration = 100 * 365 * 24 * time.Hour

// duration checks a time that may be absent: from 1ms, in whole milliseconds.
func (c checker) duration(d *durationpb.Duration) {
	switch {
	case d == nil:
	case d.CheckValid() != nil || d.AsDuration() < time.Millisecond:
		c.fail("must be at least 1ms, is %s", d.AsDuration())
	case d.AsDuration() > maxDuration:
		c.fail("must be at most %s, is %s", maxDuration, d.AsDuration())
	case d.AsDuration()%time.Millisecond != 0:
		c.fail("must be whole milliseconds, is %s", d.AsDuration())
	}
}

// neededDuration checks a time as duration does, and that it is set.
func (c checker) neededDuration(d *durationpb.Duration) {
	if d == nil {
		c.fail("is missing")
	}
	c.duration(d)
}

// durationOrOff checks a time as duration does, but it may be 0.
func (c checker) durationOrOff(d *durationpb.Duration) {
	if d.AsDuration() != 0 {
		c.duration(d)
	}
}

// dnsLabel checks a name that is one label, such as the name of a subset.
func (c checker) dnsLabel(name string) {
	if name == "" {
		c.fail("is missing")
		return
	}
	c.syntax(name, validation.IsDNS1123Label)
}

// namespace only warns of capital letters, which no namespace has.
func (c checker) namespace(name string) {
	if name != lower(name) && len(validation.IsDNS1123Label(lower(name))) == 0 {
		c.warn("%q has capital letters, as no namespace has: it means none", name)
		return
	}
	c.syntax(name, validation.IsDNS1123Label)
}

// regex checks an expression that Envoy will run.
func (c checker) regex(expression string) {
	if len(expression) > 1024 {
		c.fail("is longer than 1024 bytes")
		return
	}
	if _, err := regexp.Compile(expression); err != nil {
		c.fail("%v", err)
	}
	if escape := beyondByte(expression); escape != "" {
		c.fail("has %s, and proxies match bytes: write the character itself", escape)
	}
}

// beyondByte returns the first escape of a character above 0xff, as in \x{1F680}, which
// Envoy does not support; empty if there is none.
func beyondByte(expression string) string {
	for rest := expression; ; {
		at := strings.IndexByte(rest, '\\')
		if at < 0 || at == len(rest)-1 {
			return ""
		}
		rest = rest[at:]
		switch {
		case strings.HasPrefix(rest, `\Q`):
			_, after, _ := strings.Cut(rest, `\E`)
			rest = after
			continue
		case strings.HasPrefix(rest, `\x{`):
			digits, _, _ := strings.Cut(rest[len(`\x{`):], "}")
			if n, err := strconv.ParseUint(digits, 16, 64); err == nil && n > 0xff {
				return `\x{` + digits + "}"
			}
		}
		rest = rest[len(`\x`):]
	}
}

// exportTo checks the namespaces an object is visible to.
func (c checker) exportTo(values []string) {
	each(c, values, func(c checker, v string) {
		switch v {
		case ".":
		case "*", "~":
			if len(values) > 1 {
				c.fail("%q must stand alone", v)
			}
		default:
			c.namespace(v)
		}
	})
	unique(c, values, identity)
}

func (c checker) selector(s *networking.WorkloadSelector) {
	if s == nil {
		return
	}
	if len(s.Labels) == 0 {
		c.warn("has no labels and selects every workload")
	}
	c.at("labels").selected(s.Labels)
}

// bind checks the address of a listener.
func (c checker) bind(address string) {
	switch {
	case address == "":
	case !isIP(address):
		c.fail("must be an IP address, is %q", address)
	}
}

// namespacedHost checks "host" or "namespace/host", the forms in which Gateway
// and Sidecar name hosts, and returns the parts.
func (c checker) namespacedHost(value string, namespaces ...string) (namespace, host string) {
	namespace, host, ok := strings.Cut(value, "/")
	if !ok {
		namespace, host = "", value
	}
	if ok && !slices.Contains(namespaces, namespace) {
		c.namespace(namespace)
	}
	if err := hostPattern(host); err != nil {
		c.fail("%v", err)
	}
	return namespace, host
}
