package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func post(t *testing.T, a clitest.API, path, body string) {
	t.Helper()
	if answer := a.Server.Do(t, "POST", path, body); answer.Code != 201 {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
}

// told makes an event of a VirtualService of the namespace shop.
func told(t *testing.T, a clitest.API, name, object, rest string) {
	t.Helper()
	post(t, a, "/api/v1/namespaces/shop/events", `{"apiVersion":"v1","kind":"Event","metadata":{"name":"`+name+`"},
		"involvedObject":{"kind":"VirtualService","namespace":"shop","name":"`+object+`"},`+rest+`}`)
}

func TestEvents(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	told(t, a, "late", "reviews", `"type":"Warning","reason":"PTL0101","message":"no such host","count":3,"lastTimestamp":"2026-01-02T03:04:06Z"`)
	told(t, a, "zearly", "reviews", `"type":"Normal","reason":"Acknowledged","message":"they have it","lastTimestamp":"2026-01-02T03:04:05Z"`)
	told(t, a, "other", "ratings", `"type":"Normal","reason":"Acknowledged","message":"they have it","lastTimestamp":"2026-01-02T03:04:07Z"`)
	names := func(args ...string) string {
		return strings.ReplaceAll(a.Must(t, "", append([]string{"events", "-o", "name"}, args...)...), "event/shop/", "")
	}
	clitest.Same(t, "the newest come last", names("-n", "shop"), "zearly\nlate\nother\n")
	clitest.Same(t, "of an object", names("--for", "vs/reviews", "-n", "shop"), "zearly\nlate\n")
	clitest.Same(t, "of all namespaces", names("-A"), "zearly\nlate\nother\n")
	table := a.Must(t, "", "events", "-n", "shop", "--for", "VirtualService/reviews")
	for _, want := range []string{"LAST SEEN  TYPE     REASON        OBJECT ", "Warning  PTL0101       virtualservice/shop/reviews  no such host"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table has no %s:\n%s", want, table)
		}
	}
	wide := strings.Split(a.Must(t, "", "events", "-n", "shop", "--for", "vs/reviews", "-o", "wide"), "\n")
	if !clitest.HasLine(wide[0], []string{"LAST SEEN", "MESSAGE", "COUNT", "FROM", "NAME"}) || !clitest.HasLine(wide[2], []string{"no such host", "3", "late"}) {
		t.Errorf("%q", wide)
	}
	if o := a.Do(t, "", "events", "--for", "nothing"); o.Code != exit.Usage {
		t.Errorf("%+v", o)
	}
	if o := a.Do(t, "", "events", "-n", "blog"); o.Code != 0 || !strings.Contains(o.Err, "No events found in namespace blog") {
		t.Errorf("%+v", o)
	}
}

// TestDeleteNamespace: it says what is in it and asks, and without a terminal wants --yes.
func TestDeleteNamespace(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	post(t, a, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	a.Must(t, clitest.Entry("a", ", namespace: shop")+"---\n"+clitest.Entry("b", ", namespace: shop"), "apply", "-f", "-")
	told(t, a, "x", "reviews", `"reason":"Odd"`)
	if out := a.Must(t, "", "get", "namespaces"); !strings.Contains(out, "shop") {
		t.Error(out)
	}
	o := a.Do(t, "", "delete", "namespace", "shop")
	if o.Code != exit.Usage || !strings.Contains(o.Err, "namespace/shop: with all that is in it: 2 serviceentries, 1 events") || !strings.Contains(o.Err, "add --yes") {
		t.Errorf("%+v", o)
	}
	clitest.Same(t, "a dry run", a.Must(t, "", "delete", "ns/shop", "--dry-run=server"), "namespace/shop  deleted (dry run)  with all that is in it: 2 serviceentries, 1 events\n")
	if out := a.Must(t, "", "get", "se", "-n", "shop", "-o", "name"); out != "serviceentry/shop/a\nserviceentry/shop/b\n" {
		t.Errorf("there are %s", out)
	}
	clitest.Same(t, "with --yes", a.Must(t, "", "delete", "ns/shop", "--yes"), "namespace/shop  deleted  with all that is in it: 2 serviceentries, 1 events\n")
	if out := a.Must(t, "", "get", "se,events,namespaces", "-A", "-o", "name"); out != "" {
		t.Errorf("there are %s", out)
	}
	if o := a.Do(t, "", "delete", "ns/shop", "--yes"); o.Code != exit.Failure || !strings.Contains(o.Err, `namespaces "shop" not found`) {
		t.Errorf("%+v", o)
	}
	clitest.Same(t, "of none", a.Must(t, "", "delete", "ns/shop", "--yes", "--ignore-not-found"), "")
}
