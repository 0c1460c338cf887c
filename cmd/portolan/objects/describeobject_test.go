package objects

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// describedObject answers the requests that describe sends for an object.
func describedObject(r *http.Request) any {
	switch r.URL.Path {
	case admin.PropagationPath:
		return admin.Propagation{Distribution: progress.Distribution{
			Revision: 815, Published: 817, Count: status.Count{Accepted: 40, NotConcerned: 3, Rejected: 1}, Offline: 1,
			Problems: []status.Problem{{Node: "sidecar~10.0.0.17~vm-17.shop~d", Type: "RDS", Revision: 812, Rejected: true, RejectedRevision: 815, Message: `no "v3"`}},
			Gone:     []progress.Place{{Node: "sidecar~10.0.0.9~vm-9.shop~d", Seen: clitest.Noon.Add(-3 * time.Minute)}},
		}}
	case finding.Path:
		of := func(name string) finding.Object {
			return finding.Object{APIVersion: "networking.istio.io/v1", Kind: "VirtualService", Namespace: "shop", Name: name}
		}
		return finding.List{Items: []finding.Finding{
			{Code: "PTL0102", Istio: "IST0101", Severity: "error", Object: of("reviews"), Field: "spec.http[0].route[0].destination.subset", Message: `"v3" is no subset`, Remedy: "add the subset"},
			{Code: "PTL0113", Severity: "warning", Object: of("another"), Field: "spec.http[1]", Message: "is of another object"},
		}}
	case admin.ReferencesPath:
		return admin.References{
			To: []admin.Reference{
				{Object: "gateway/shop/edge", Fields: []string{"spec.gateways[0]"}},
				{Object: "subset v3 of reviews.shop", Fields: []string{"spec.http[0].route[0].destination.subset"}, Missing: true},
			},
			From: []admin.Reference{{Object: "virtualservice/edge/front", Fields: []string{"spec.http[0].delegate"}}},
		}
	}
	return `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService",
	  "metadata":{"name":"reviews","namespace":"shop","creationTimestamp":"2026-01-31T11:00:00Z"},
	  "status":{"conditions":[
	    {"type":"Accepted","status":"True","reason":"Valid","message":"it is valid","lastTransitionTime":"2026-01-31T11:00:01.5Z"},
	    {"type":"ResolvedRefs","status":"False","reason":"PTL0102","message":"spec.http[0].route[0].destination.subset \"v3\" is no subset","lastTransitionTime":"2026-01-31T11:59:00Z"},
	    {"type":"Rejected","status":"True","reason":"Refused","message":"no\n\"v3\"","lastTransitionTime":"2026-01-31T11:59:00Z"}]}}`
}

func TestDescribeObject(t *testing.T) {
	t.Parallel()
	var asked []string
	out, err := serving(t, func(r *http.Request) any {
		asked = append(asked, r.URL.RequestURI())
		return describedObject(r)
	}, "describe", "vs/reviews", "-n", "shop")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out.Out, "describe-object.txt")
	query := "?group=networking.istio.io&kind=VirtualService&name=reviews&namespace=shop"
	for _, want := range []string{"/apis/networking.istio.io/v1/namespaces/shop/virtualservices/reviews", admin.PropagationPath + query, admin.ReferencesPath + query} {
		if !strings.Contains(strings.Join(asked, "\n")+"\n", want+"\n") {
			t.Errorf("%s is not asked for: %v", want, asked)
		}
	}
	out, err = serving(t, describedObject, "describe", "vs", "reviews", "-n", "shop", "-o", "yaml")
	for _, want := range []string{"kind: Description\n", "    name: reviews\n", "  accepted: 40\n", "  - fields:\n    - spec.http[0].delegate\n    object: virtualservice/edge/front\n", "findings:\n- code: PTL0102\n"} {
		if err != nil || !strings.Contains(out.Out, want) {
			t.Errorf("%v: there is no %q in\n%s", err, want, out.Out)
		}
	}
}

// TestDescribeAheadOfConditions: a condition that quotes a finding which is gone says so.
func TestDescribeAheadOfConditions(t *testing.T) {
	t.Parallel()
	out, err := serving(t, func(r *http.Request) any {
		if r.URL.Path == finding.Path {
			return finding.List{}
		}
		return describedObject(r)
	}, "describe", "vs/reviews", "-n", "shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"Accepted", "True", "59m", "Valid", "it is valid"}, {"ResolvedRefs", "False", "1m", "PTL0102", "is not so any more: the condition follows in some seconds"},
	} {
		if !clitest.HasLine(out.Out, line) {
			t.Errorf("no line with %q in\n%s", line, out.Out)
		}
	}
}

func TestWhatDescribeRefuses(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	for line, want := range map[string]clitest.Outcome{
		"describe":             {Code: exit.Usage, Err: "portolan: name what to describe: KIND/NAME, or service HOST\nSee 'portolan describe --help'\n"},
		"describe vs":          {Code: exit.Usage, Err: "portolan: name one object to describe: KIND/NAME or KIND NAME\n"},
		"describe vs/x -o xml": {Code: exit.Usage, Err: "portolan: -o \"xml\": use table, json or yaml\n"},
		"describe vs/x":        {Code: exit.Failure, Err: "portolan: virtualservice/default/x: not found: see those there are with portolan get virtualservices -A\n"},
	} {
		if o := a.Do(t, "", strings.Fields(line)...); o != want {
			t.Errorf("%s: %+v", line, o)
		}
	}
}
