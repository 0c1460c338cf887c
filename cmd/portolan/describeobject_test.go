package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/propagation"
)

// describedObject answers what describe asks about an object.
func describedObject(r *http.Request) any {
	switch r.URL.Path {
	case admin.PropagationPath:
		return admin.Propagation{Progress: propagation.Progress{
			Revision: 815, Published: 817, Count: status.Count{Accepted: 40, NotConcerned: 3, Rejected: 1}, Offline: 1,
			Troubles: []status.Trouble{{Node: "sidecar~10.0.0.17~vm-17.shop~d", Type: "RDS", Revision: 812, Rejected: true, RejectedRevision: 815, Message: `no "v3"`}},
			Gone:     []propagation.Gone{{Node: "sidecar~10.0.0.9~vm-9.shop~d", Seen: noon.Add(-3 * time.Minute)}},
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
	golden(t, "describe-object.txt", out.out)
	query := "?group=networking.istio.io&kind=VirtualService&name=reviews&namespace=shop"
	for _, want := range []string{"/apis/networking.istio.io/v1/namespaces/shop/virtualservices/reviews", admin.PropagationPath + query, admin.ReferencesPath + query} {
		if !strings.Contains(strings.Join(asked, "\n")+"\n", want+"\n") {
			t.Errorf("%s is not asked for: %v", want, asked)
		}
	}
	out, err = serving(t, describedObject, "describe", "vs", "reviews", "-n", "shop", "-o", "yaml")
	for _, want := range []string{"kind: Description\n", "    name: reviews\n", "  accepted: 40\n", "  - fields:\n    - spec.http[0].delegate\n    object: virtualservice/edge/front\n"} {
		if err != nil || !strings.Contains(out.out, want) {
			t.Errorf("%v: there is no %q in\n%s", err, want, out.out)
		}
	}
}

func TestWhatDescribeRefuses(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	for line, want := range map[string]outcome{
		"describe":             {exitUsage, "", "portolan: name what to describe: KIND/NAME, or service HOST\nSee 'portolan describe --help'\n"},
		"describe vs":          {exitUsage, "", "portolan: name one object to describe: KIND/NAME or KIND NAME\n"},
		"describe vs/x -o xml": {exitUsage, "", "portolan: -o \"xml\": use table, json or yaml\n"},
		"describe vs/x":        {exitFailure, "", "portolan: virtualservice/default/x: not found: see those there are with portolan get virtualservices -A\n"},
	} {
		if o := a.do(t, "", strings.Fields(line)...); o != want {
			t.Errorf("%s: %+v", line, o)
		}
	}
}
