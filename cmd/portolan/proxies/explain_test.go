package proxies

import (
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/xds/explain"
)

func someExplanation() explain.Explanation {
	return explain.Explanation{
		Revision: 815,
		Proxy:    explain.Proxy{Node: "sidecar~10.0.0.1~vm-12.shop~shop", Type: "sidecar", Name: "vm-12.shop", Namespace: "shop", Connected: true},
		Request:  explain.Request{Protocol: "http/1.1", Host: "reviews.shop:9080", Address: "240.240.0.7", Port: 9080},
		Listener: "0.0.0.0_9080", Objects: []string{"serviceentry/shop/reviews"},
		Route: &explain.Route{
			Name: "api", Object: "virtualservice/shop/reviews", Field: "spec.http[0].match[1]",
			Retries: 2, RetryOn: "5xx", PerTryTimeout: "1s", Fault: "delay 10% by 5s", PathRewritten: "/1",
			Mirrors:     []string{"10% to outbound|9080||reviews.shop", "5% to outbound|9080|v9|reviews.shop"},
			MirrorsLost: []string{"reviews.shop:9080 subset v9: it has no endpoint"},
			NotTaken:    []string{"spec.http[0].headers"},
		},
		Destinations: []explain.Destination{
			{
				Cluster: "a", Host: "reviews.shop", Port: 9080, Subset: "v1", Percent: 50, LoadBalancer: "LEAST_REQUEST",
				Services: []string{"serviceentry/shop/reviews"}, Rules: []string{"destinationrule/shop/reviews"},
				Plaintext: "the proxy has no certificate of the mesh", Endpoints: []string{"10.0.0.2:80", "10.0.0.3:80"}, Localities: []explain.Locality{{Locality: "eu/a", Healthy: 2, Total: 3}},
				Preference: "the proxy runs in eu/a: eu/a", LeftOut: []string{"workloadentry/shop/vm-9: it was reported not to be healthy"},
				Inbound: []explain.Inbound{
					{Endpoints: []string{"10.0.0.2:80"}, Listener: "virtualInbound", Cluster: "inbound|80||", Objects: []string{"serviceentry/shop/reviews"}, Outcome: explain.Forwarded, Access: &explain.Access{Decision: explain.Allowed, Reason: "no policy is for it"}},
					{Endpoints: []string{"10.0.0.3:80"}, Listener: "10.0.0.3_80", Outcome: explain.Fails, Reason: "the ingress listener names no address of the application"},
				},
			},
			{Cluster: "b", Host: "reviews.shop", Port: 9080, Subset: "v2", Percent: 50, Fails: "it has no endpoint"},
		},
		Outcome: explain.PartlyFails, Status: 503, Reason: "reviews.shop:9080 subset v2: it has no endpoint",
	}
}

func TestExplainRequest(t *testing.T) {
	t.Parallel()
	var asked string
	out, err := serving(t, func(r *http.Request) any {
		asked = r.URL.String()
		return someExplanation()
	}, "explain", "request", "--from", "shop/vm-12", "--to", "reviews.shop:9080", "--path", "/api/1", "--header", "x-user=anna", "--header", "a=b")
	if err != nil {
		t.Fatal(err)
	}
	clitest.Same(t, "question", asked, explain.Path+"?from=shop%2Fvm-12&header=x-user%3Danna&header=a%3Db&path=%2Fapi%2F1&to=reviews.shop%3A9080")
	golden.Assert(t, out.Out, "explain-request.txt")
}

// TestExplainRequestThatIsAsked: where an authorizer decides, the outcome says who.
func TestExplainRequestThatIsAsked(t *testing.T) {
	t.Parallel()
	asks := explain.Explanation{Outcome: explain.Forwarded, Destinations: []explain.Destination{{Inbound: []explain.Inbound{{Access: &explain.Access{Decision: explain.Asked, Provider: "opa"}}}}}}
	out, err := serving(t, func(*http.Request) any { return asks }, "explain", "request", "--from", "shop/vm-12", "--to", "reviews.shop:9080")
	if err != nil || !strings.Contains(out.Out, "it goes to the endpoints, if opa lets it pass\n") {
		t.Errorf("%v\n%s", err, out.Out)
	}
}

func TestExplainRequestThatIsRefused(t *testing.T) {
	t.Parallel()
	out, err := serving(t, func(*http.Request) any {
		return explain.Explanation{Proxy: explain.Proxy{Type: "router", Name: "edge.shop"}, Outcome: explain.Fails, Reason: "the proxy does not listen on port 81"}
	}, "explain", "request", "--from", "gateway/shop/edge", "--to", "reviews.shop:81")
	if err != nil {
		t.Fatal(err)
	}
	clitest.Same(t, "output", out.Out, "proxy    edge.shop, a router as it would be\noutcome  ! it fails: the proxy does not listen on port 81\n")
}

func TestExplainRequestOfADelegate(t *testing.T) {
	t.Parallel()
	out, err := serving(t, func(*http.Request) any {
		return explain.Explanation{
			Proxy:   explain.Proxy{Type: "router", Name: "edge.shop"},
			Route:   &explain.Route{Object: "virtualservice/team/api", Field: "spec.http[1].match[0]", Root: "virtualservice/shop/front", RootField: "spec.http[2]"},
			Outcome: explain.Answered, Status: 410,
		}
	}, "explain", "request", "--from", "gateway/shop/edge", "--to", "reviews.shop:80")
	if want := "virtualservice/team/api http[1].match[0], a delegate of virtualservice/shop/front http[2]"; err != nil || !strings.Contains(out.Out, want) {
		t.Errorf("%v: no %q in\n%s", err, want, out.Out)
	}
}

// TestExplainRequestNamesTheSource: a route of an object that is not the store's names its source.
func TestExplainRequestNamesTheSource(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{"": "virtualservice/shop/a http[0]\n", "kube://east": "virtualservice/shop/a http[0], from kube://east\n"} {
		out, err := serving(t, func(*http.Request) any {
			return explain.Explanation{Route: &explain.Route{Object: "virtualservice/shop/a", Field: "spec.http[0]", Source: source}, Outcome: explain.Answered, Status: 410}
		}, "explain", "request", "--from", "shop/vm-1", "--to", "reviews.shop:80")
		if err != nil || !strings.Contains(out.Out, want) {
			t.Errorf("%v: no %q in\n%s", err, want, out.Out)
		}
	}
}

func TestExplainRequestForPrograms(t *testing.T) {
	t.Parallel()
	out, err := serving(t, func(*http.Request) any { return someExplanation() }, "explain", "request", "--from", "a", "--to", "b:1", "-o", "json")
	if err != nil || !strings.Contains(out.Out, `"outcome": "PartlyFails"`) {
		t.Errorf("%v\n%s", err, out.Out)
	}
}

func TestExplainRequestNeedsItsEnds(t *testing.T) {
	t.Parallel()
	if o := do(t, "", "explain", "request", "--from", "a"); o.Code != exit.Usage || !strings.Contains(o.Err, "to") {
		t.Errorf("exit code %d: %s", o.Code, o.Err)
	}
}
