package integration

import (
	"strings"
	"testing"
)

// TestKubectlReadsOpenAPI: kubectl explains kinds, and its commands work with the validation
// that is their default.
func TestKubectlReadsOpenAPI(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	words := func(line string) []string { return strings.Fields(line) }

	k.expectOutput(true, "", words("explain virtualservice"), "GROUP:      networking.istio.io", "KIND:       VirtualService", "VERSION:    v1", "Routes the requests", "spec\t<VirtualService> -required-")
	k.expectOutput(true, "", words("explain virtualservice.spec.http.route"), "FIELD: route <[]HTTPRouteDestination>", "destination\t<Destination> -required-", "weight\t<integer>", "The share of the requests")
	k.expectOutput(true, "", words("explain destinationrule --recursive"), "trafficPolicy", "consecutive5xxErrors\t<integer>", "enum: UNSPECIFIED, LEAST_CONN, RANDOM, PASSTHROUGH")
	k.expectOutput(true, "", words("explain virtualservices --api-version=networking.istio.io/v1alpha3"), "VERSION:    v1alpha3")
	k.expectOutput(true, "", words("explain secret.data"), "FIELD: data <map[string]string>")
	k.expectOutput(true, "", words("explain roles.spec.rules.verbs"), "FIELD: verbs <[]string>")
	k.expectOutput(true, "", words("explain serviceentry.status.conditions"), "FIELD: conditions <[]IstioCondition>")
	k.expectOutput(true, "", words("explain workloadentry.spec --output=plaintext-openapiv2"), "serviceAccount", "The identity of the workload")
	k.expectOutput(false, "", words("explain virtualservice.spec.kettle"), `field "kettle" does not exist`)

	web := ship("shop", "web", "10.0.0.1")
	k.expectOutput(true, web, words("apply --dry-run=client -f -"), "serviceentry.networking.istio.io/web created (dry run)")
	k.expectOutput(true, web, words("apply --dry-run=server -f -"), "serviceentry.networking.istio.io/web created (server dry run)")
	k.expectOutput(true, "", words("get se"), "No resources found")
	odd := strings.Replace(web, "resolution:", "kettle: 1\n  resolution:", 1)
	if odd == web {
		t.Fatalf("no resolution in %s", web)
	}
	for _, how := range []string{"", "--validate=strict", "--validate=warn", "--validate=ignore", "--dry-run=server"} {
		k.expectOutput(false, odd, append(words("create -f -"), words(how)...), "spec.kettle", "unknown field")
	}
	k.expectOutput(true, web, words("create -f -"), "serviceentry.networking.istio.io/web created")
	k.expectOutput(true, strings.Replace(web, "10.0.0.1", "10.0.0.2", 1), words("replace -f -"), "web replaced")
	k.expectOutput(true, "", words("create secret generic words --from-literal=a=b --dry-run=client -o yaml"), "kind: Secret")
	k.expectOutput(true, "apiVersion: v1\nkind: Secret\nmetadata: {name: words}\nstringData: {a: b}\n", words("apply -f -"), "secret/words created")
}
