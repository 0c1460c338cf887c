package policytest

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Evaluate says whether a request passes the policies of a group, in the words of
// https://istio.io/latest/docs/reference/config/security/authorization-policy/ and conditions/:
// a DENY policy that matches refuses; else, if there is an ALLOW policy, one must match.
func (g Group) Evaluate(r Request) bool {
	e := evaluator{request: r.WithDefaults(), tcp: g.TCP}
	allows, allowed := false, false
	for _, c := range g.Policies {
		if c.Annotations["istio.io/dry-run"] == "true" {
			continue
		}
		spec := c.Spec.(*security.AuthorizationPolicy)
		switch spec.Action {
		case security.AuthorizationPolicy_DENY:
			if e.matches(c, spec) {
				return false
			}
		case security.AuthorizationPolicy_ALLOW:
			allows = true
			allowed = allowed || e.matches(c, spec)
		}
	}
	return allowed || !allows
}

// evaluator judges a request by the rules of one policy.
type evaluator struct {
	request Request
	tcp     bool
	// lenient: on TCP, what is only of HTTP is left out of the rule. Otherwise it skips the
	// rule.
	lenient, skipped bool
	namespace        string
}

// matches: a policy matches if one of its rules does.
func (e evaluator) matches(c *config.Config, spec *security.AuthorizationPolicy) bool {
	e.lenient, e.namespace = spec.Action != security.AuthorizationPolicy_ALLOW, c.Namespace
	return slices.ContainsFunc(spec.Rules, func(rule *security.Rule) bool {
		one := e
		return one.rule(rule) && !one.skipped
	})
}

// rule: one of the sources, one of the operations, and all conditions.
func (e *evaluator) rule(rule *security.Rule) bool {
	from, to, when := len(rule.From) == 0, len(rule.To) == 0, true
	for _, f := range rule.From {
		from = e.source(f.GetSource()) || from
	}
	for _, t := range rule.To {
		to = e.operation(t.GetOperation()) || to
	}
	for _, w := range rule.When {
		when = e.condition(w) && when
	}
	return from && to && when
}

// field: one of the values, if there are any, and none of the others.
func (e *evaluator) field(http bool, values, others []string, is func(string) bool) bool {
	if http && e.tcp && len(values)+len(others) > 0 {
		e.skipped = e.skipped || !e.lenient
		return true
	}
	return (len(values) == 0 || slices.ContainsFunc(values, is)) && !slices.ContainsFunc(others, is)
}

func all(parts ...bool) bool { return !slices.Contains(parts, false) }

func (e *evaluator) source(s *security.Source) bool {
	return all(
		e.field(false, s.Principals, s.NotPrincipals, e.principal),
		e.field(true, s.RequestPrincipals, s.NotRequestPrincipals, e.token),
		e.field(false, s.Namespaces, s.NotNamespaces, e.ofNamespace),
		e.field(false, s.ServiceAccounts, s.NotServiceAccounts, e.account),
		e.field(false, s.TrustDomains, s.NotTrustDomains, e.ofDomain),
		e.field(false, s.IpBlocks, s.NotIpBlocks, in(e.request.Source)),
		e.field(false, s.RemoteIpBlocks, s.NotRemoteIpBlocks, in(e.request.Origin)),
	)
}

func (e *evaluator) operation(o *security.Operation) bool {
	path, _, _ := strings.Cut(e.request.Path, "?")
	return all(
		e.field(true, o.Hosts, o.NotHosts, func(v string) bool { return like(strings.ToLower(v), strings.ToLower(e.request.Host)) }),
		e.field(true, o.Methods, o.NotMethods, func(v string) bool { return like(v, e.request.Method) }),
		e.field(true, o.Paths, o.NotPaths, func(v string) bool {
			if strings.Contains(v, "{*") {
				return template(strings.Split(v, "/"), strings.Split(path, "/"))
			}
			return like(v, path)
		}),
		e.field(false, o.Ports, o.NotPorts, func(v string) bool { return v == strconv.Itoa(e.request.Port) }),
	)
}

func (e *evaluator) condition(w *security.Condition) bool {
	name := func(prefix string) (string, bool) {
		rest, ok := strings.CutPrefix(w.Key, prefix+"[")
		return strings.TrimSuffix(rest, "]"), ok
	}
	if header, ok := name("request.headers"); ok {
		value, present := e.request.Headers[header]
		return e.field(true, w.Values, w.NotValues, func(v string) bool { return present && (v == "*" || like(v, value)) })
	}
	if path, ok := name("request.auth.claims"); ok {
		return e.field(true, w.Values, w.NotValues, e.claim(strings.Split(path, "][")...))
	}
	of, http := map[string]func(string) bool{
		"source.ip": in(e.request.Source), "remote.ip": in(e.request.Origin), "source.namespace": e.ofNamespace, "source.principal": e.principal,
		"source.serviceAccount": e.account, "source.trustDomain": e.ofDomain, "request.auth.principal": e.token,
		"request.auth.audiences": e.claim("aud"), "request.auth.presenter": e.claim("azp"), "destination.ip": in(e.request.Address),
		"destination.port": func(v string) bool { return v == strconv.Itoa(e.request.Port) },
		"connection.sni":   func(v string) bool { return like(v, e.request.SNI) },
	}, strings.HasPrefix(w.Key, "request.")
	if of[w.Key] == nil {
		panic(fmt.Sprintf("the evaluator has no condition %s", w.Key))
	}
	return e.field(http, w.Values, w.NotValues, of[w.Key])
}

// like: a value is exact, or a prefix, or a suffix, or present.
func like(value, text string) bool {
	switch n := len(value) - 1; {
	case value == "*":
		return text != ""
	case value[n] == '*':
		return strings.HasPrefix(text, value[:n])
	case value[0] == '*':
		return strings.HasSuffix(text, value[1:])
	}
	return value == text
}

func in(address string) func(string) bool {
	return func(block string) bool {
		if !strings.Contains(block, "/") {
			return block == address
		}
		return netip.MustParsePrefix(block).Contains(netip.MustParseAddr(address))
	}
}

// template: {*} is one segment, which is not empty; {**} is the rest.
func template(pattern, path []string) bool {
	if len(pattern) == 0 || len(path) == 0 {
		return len(pattern) == len(path)
	}
	switch pattern[0] {
	case "{**}": // it may be followed by text, but by no operator
		for i := range path {
			if template(pattern[1:], path[i+1:]) {
				return true
			}
		}
		return false
	case "{*}":
		return path[0] != "" && template(pattern[1:], path[1:])
	}
	return pattern[0] == path[0] && template(pattern[1:], path[1:])
}

// parts are the trust domain, namespace and account of the client's certificate.
func (e *evaluator) parts() (domain, namespace, account string, ok bool) {
	p := strings.Split(e.request.Identity, "/")
	if len(p) != 5 {
		return "", "", "", false
	}
	return p[0], p[2], p[4], true
}

// principal: a workload of the mesh has its name under each trust domain of the mesh, which
// cluster.local stands for.
func (e *evaluator) principal(value string) bool {
	domain, rest, ok := strings.Cut(value, "/")
	if domain != "cluster.local" && like(value, e.request.Identity) {
		return true
	}
	own, _, _, identified := e.parts()
	ours := domain == "cluster.local" || domain != "*" && slices.ContainsFunc(TrustDomains(), func(d string) bool { return like(domain, d) })
	return ok && identified && ours && slices.Contains(TrustDomains(), own) && like(own+"/"+rest, e.request.Identity)
}

func (e *evaluator) ofNamespace(value string) bool {
	_, namespace, _, ok := e.parts()
	return ok && like(value, namespace)
}

func (e *evaluator) ofDomain(value string) bool {
	domain, _, _, ok := e.parts()
	return ok && like(value, domain)
}

func (e *evaluator) account(value string) bool {
	_, namespace, account, ok := e.parts()
	if !strings.Contains(value, "/") {
		value = e.namespace + "/" + value
	}
	return ok && value == namespace+"/"+account
}

// token: the principal of a token is issuer/subject, and a subject has no slash. issuer/* is
// each subject of this issuer.
func (e *evaluator) token(value string) bool {
	issuer, _ := e.request.Claims["iss"].(string)
	subject, _ := e.request.Claims["sub"].(string)
	if of, ok := strings.CutSuffix(value, "/*"); ok && of != "*" {
		return of == issuer && subject != ""
	}
	return issuer != "" && subject != "" && !strings.Contains(subject, "/") && like(value, issuer+"/"+subject)
}

// claim: a claim is a text, or a list with a text.
func (e *evaluator) claim(path ...string) func(string) bool {
	var value any = e.request.Claims
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return func(v string) bool {
		is := func(element any) bool {
			text, ok := element.(string)
			return ok && like(v, text)
		}
		list, _ := value.([]any)
		return is(value) || slices.ContainsFunc(list, is)
	}
}
