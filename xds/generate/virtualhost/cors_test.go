package virtualhost_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/simulate"
)

// TestPreflights: preflight requests, by which browsers ask whether a page of another
// origin may send a request.
func TestPreflights(t *testing.T) {
	t.Parallel()
	const onward = "route: [{destination: {host: web.example.com}}]"
	allowing := func(policy string) []string {
		return []string{web, routes("{" + onward + ", corsPolicy: " + policy + "}")}
	}
	from := func(origin string) simulate.Request {
		return simulate.Request{Host: "web.example.com", Method: "OPTIONS", Headers: map[string]string{"Origin": origin, "Access-Control-Request-Method": "PUT"}}
	}
	const a, b = "https://a.example.com", "https://b.example.com"
	run(t, []behaviour{
		{name: "of an allowed origin", mesh: allowing("{allowOrigins: [{exact: '" + a + "'}]}"), request: from(a), want: "200"},
		{name: "of another one", mesh: allowing("{allowOrigins: [{exact: '" + a + "'}]}"), request: from(b), want: toWeb},
		{name: "which are to be answered", mesh: allowing("{allowOrigins: [{exact: '" + a + "'}], unmatchedPreflights: IGNORE}"), request: from(b), want: "200"},
		{name: "which are to be forwarded", mesh: allowing("{allowOrigins: [{exact: '" + a + "'}], unmatchedPreflights: FORWARD}"), request: from(b), want: toWeb},
		{name: "by prefix", mesh: allowing("{allowOrigins: [{prefix: 'https://b'}]}"), request: from(b), want: "200"},
		{name: "by regex", mesh: allowing("{allowOrigins: [{regex: 'https://[ab].*'}]}"), request: from(b), want: "200"},
		{name: "of all origins", mesh: allowing("{allowOrigins: [{exact: '*'}]}"), request: from(b), want: "200"},
		{name: "by the deprecated list", mesh: allowing("{allowOrigin: ['" + b + "']}"), request: from(b), want: "200"},
		{name: "which allowOrigins outranks", mesh: allowing("{allowOrigin: ['" + b + "'], allowOrigins: [{exact: '" + a + "'}]}"), request: from(b), want: toWeb},
		{name: "of no origin that is allowed", mesh: allowing("{}"), request: from(a), want: toWeb},
		{name: "a request that is none", mesh: allowing("{allowOrigins: [{exact: '*'}]}"), want: toWeb,
			request: simulate.Request{Host: "web.example.com", Method: "OPTIONS", Headers: map[string]string{"Origin": a}}},
		{name: "not behind a fault", mesh: []string{web, routes("{" + onward + ", fault: {abort: {httpStatus: 503, percentage: {value: 100}}}, corsPolicy: {allowOrigins: [{exact: '*'}]}}")},
			request: from(a), want: "abort 100% with 503"},
		{name: "not of a direct response", mesh: []string{web, routes("{directResponse: {status: 418}, corsPolicy: {allowOrigins: [{exact: '*'}]}}")},
			request: from(a), want: "418"},
	})
}
