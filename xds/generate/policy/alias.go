package policy

import (
	"slices"
	"strings"
)

// localDomain stands for the trust domain of the mesh, whatever it is.
const localDomain = "cluster.local"

// withAliases adds the principals under the other trust domains of the mesh: a workload is
// the same under each. Principals of foreign domains stay alone.
// https://github.com/istio/istio/blob/1.28.0/pilot/pkg/trustbundle/trustdomain.go ReplaceTrustDomainAliases
func withAliases(principals, domains []string) []string {
	if len(domains) == 0 {
		return principals
	}
	out, seen := make([]string, 0, len(principals)), make(map[string]bool, len(principals))
	add := func(p string) {
		if !seen[p] {
			out, seen[p] = append(out, p), true
		}
	}
	for _, p := range principals {
		domain, rest, _ := strings.Cut(p, "/")
		ours := slices.ContainsFunc(domains, func(d string) bool { return covers(domain, d) })
		if !namesDomain(p) || !ours && domain != localDomain {
			add(p)
			continue
		}
		for _, d := range domains {
			same := d + "/" + rest
			if domain != d && covers(domain, d) {
				same = p
			}
			add(same)
		}
	}
	return out
}

// namesDomain says whether a principal begins with a trust domain, or with "*" and the end of
// one.
func namesDomain(p string) bool {
	domain, _, ok := strings.Cut(p, "/")
	return ok && domain != "*" && (!strings.HasPrefix(p, "*") || strings.Count(p, "/") == 4)
}

// covers says whether a domain is another, or a pattern of it.
func covers(pattern, domain string) bool {
	suffix, isSuffix := strings.CutPrefix(pattern, "*")
	return pattern == domain || isSuffix && strings.HasSuffix(domain, suffix)
}
