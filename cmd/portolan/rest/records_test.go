package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

const recordsPath = "/apis/portolan.io/v1/records"

func readRecords(t *testing.T, s *resttest.Server, query string) record.List {
	t.Helper()
	a := s.Do(t, "GET", recordsPath+query, "")
	if a.Code != 200 {
		t.Fatalf("%s: %d %s", query, a.Code, a.Body)
	}
	return parse[record.List](t, a.Body)
}

// historyText returns a history as text, a line for each change.
func historyText(list record.List) string {
	var lines []string
	for _, r := range list.Items {
		for _, c := range r.Changes {
			lines = append(lines, fmt.Sprintf("%s %s %s/%s", r.Revision, c.Outcome, c.Namespace, c.Name))
		}
	}
	return strings.Join(lines, ", ")
}

// shipping starts an API and makes four revisions: 2 to 5.
func shipping(t *testing.T) *resttest.Server {
	t.Helper()
	s := resttest.Start(t, 0, nil)
	create(t, s, "a", "")
	bank := strings.Replace(entry("b", ""), `"shop"`, `"bank"`, 1)
	if a := s.Do(t, "POST", batches, batchOf(write("apply", entry("a", `,"labels":{"x":"1"}`)), write("apply", bank), write("apply", logging))); a.Code != 200 {
		t.Fatal(a.Body)
	}
	create(t, s, "c", "")
	if a := s.Do(t, "DELETE", shopEntries+"/a", ""); a.Code != 200 {
		t.Fatal(a.Body)
	}
	return s
}

func TestRecords(t *testing.T) {
	t.Parallel()
	s := shipping(t)
	for query, want := range map[string]string{
		"": "5 deleted shop/a, 4 created shop/c, 3 configured shop/a, 3 created bank/b, 3 created shop/p, 2 created shop/a",
		"?kind=ServiceEntry&namespace=shop&name=a":                   "5 deleted shop/a, 3 configured shop/a, 2 created shop/a",
		"?namespace=bank":                                            "3 created bank/b",
		"?kind=Telemetry&group=telemetry.istio.io":                   "3 created shop/p",
		"?after=2&until=4&namespace=shop":                            "4 created shop/c, 3 configured shop/a, 3 created shop/p",
		"?until=3&limit=1&objects=false":                             "3 configured shop/a, 3 created bank/b, 3 created shop/p",
		"?kind=Gateway":                                              "",
		"?" + (record.Query{After: 3, Limit: 1}).Values().Encode():   "5 deleted shop/a",
		"?" + (record.Query{Kind: "Sidecar"}).Values().Encode():      "",
		"?" + (record.Query{Namespace: "none"}).Values().Encode():    "",
		"?" + (record.Query{Until: 2, Bare: true}).Values().Encode(): "2 created shop/a",
	} {
		list := readRecords(t, s, query)
		if got := historyText(list); got != want || list.Kind != "RecordList" || list.Items == nil {
			t.Errorf("%s: %s", query, got)
		}
	}
}

func TestRecordsShowTheObjects(t *testing.T) {
	t.Parallel()
	s := shipping(t)
	changed := readRecords(t, s, "?kind=ServiceEntry&namespace=shop&name=a").Items[1]
	before, after := parse[object](t, string(changed.Changes[0].Before)), parse[object](t, string(changed.Changes[0].After))
	if before.Metadata.ResourceVersion != "2" || after.Metadata.ResourceVersion != "3" || after.Metadata.Labels["x"] != "1" || after.APIVersion != "networking.istio.io/v1" {
		t.Errorf("%s", changed.Changes[0])
	}
	if changed.User != "local" || !strings.HasPrefix(changed.Address, "127.0.0.1:") || changed.Time.IsZero() {
		t.Errorf("%+v", changed)
	}
	bare := readRecords(t, s, "?objects=false").Items[0].Changes[0]
	if bare.Before != nil || bare.After != nil {
		t.Errorf("%+v", bare)
	}
}

func TestRecordsComeInPages(t *testing.T) {
	t.Parallel()
	s := shipping(t)
	var revisions []string
	until := ""
	for range 4 {
		page := readRecords(t, s, "?limit=1"+until)
		revisions = append(revisions, page.Items[0].Revision)
		until = "&until=" + page.Metadata.Continue
	}
	if got := strings.Join(revisions, " "); got != "5 4 3 2" || until != "&until=" {
		t.Errorf("%s, then %q", got, until)
	}
}

// TestRecordsOfWhatIsNotKnown: if the record of a later change is missing, the object
// after an earlier one has no spec.
func TestRecordsOfWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.History = historyWithoutObjects{o.History} })
	create(t, s, "a", "")
	after := string(readRecords(t, s, "").Items[0].Changes[0].After)
	if want := `"apiVersion":"networking.istio.io/v1","metadata":{"name":"a","namespace":"shop","resourceVersion":"2"`; !strings.Contains(after, want) || strings.Contains(after, "spec") {
		t.Errorf("%s", after)
	}
}

// historyWithoutObjects is a history that does not know the objects after changes.
type historyWithoutObjects struct{ rest.History }

func (v historyWithoutObjects) Records(ctx context.Context, q storage.Query) ([]storage.Record, error) {
	records, err := v.History.Records(ctx, q)
	for _, r := range records {
		for i := range r.Changes {
			unknown := *r.Changes[i].After
			unknown.Spec = nil
			r.Changes[i].After = &unknown
		}
	}
	return records, err
}

func TestFaultsOfARecordQueryComeTogether(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	for query, want := range map[string][]string{
		"?kind=Teapot&after=-1&until=x&limit=9999&objects=no&colour=red": {"after", "colour", "kind", "limit", "objects", "until"},
		"?group=networking.istio.io&name=a":                              {"kind", "kind"},
		"?kind=ServiceEntry&name=a":                                      {"namespace"},
		"?kind=ServiceEntry&group=security.istio.io":                     {"kind"},
		"?after=5&until=5":                                               {"until"},
		"?limit=0":                                                       {"limit"},
		"?namespace=a&namespace=b":                                       {"namespace"},
	} {
		a := s.Do(t, "GET", recordsPath+query, "")
		status := parse[metav1.Status](t, a.Body)
		found := map[string]int{}
		for _, cause := range status.Details.Causes {
			found[cause.Field]++
		}
		for _, field := range want {
			found[field]--
		}
		for field, n := range found {
			if n != 0 {
				t.Errorf("%s: %d %s: %s", query, a.Code, field, status.Message)
			}
		}
		if a.Code != 400 {
			t.Errorf("%s: %d", query, a.Code)
		}
	}
	if a := s.Do(t, "POST", recordsPath, "{}"); a.Code != 405 || a.Header.Get("Allow") != "GET" {
		t.Errorf("POST: %d", a.Code)
	}
	none := resttest.Start(t, 0, func(o *rest.Options) { o.History = nil })
	if a := none.Do(t, "GET", recordsPath, ""); a.Code != 404 {
		t.Errorf("without history: %d", a.Code)
	}
}

func TestReadersOfRecordsAreAuthorized(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Authorizer = only{"list", "shop"} })
	for query, code := range map[string]int{"?namespace=shop": 200, "?namespace=bank": 403, "": 403} {
		if a := s.Do(t, "GET", recordsPath+query, ""); a.Code != code {
			t.Errorf("%s: %d", query, a.Code)
		}
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	says := func(message string) string { return "?message=" + url.QueryEscape(message) }
	if a := s.Do(t, "POST", shopEntries+says("für immer"), entry("a", "")); a.Code != 201 {
		t.Fatal(a.Body)
	}
	if a := s.Do(t, "PUT", shopEntries+"/a"+says("a label"), entry("a", `,"labels":{"x":"1"}`)); a.Code != 200 {
		t.Fatal(a.Body)
	}
	if a := s.Do(t, "DELETE", shopEntries+"/a"+says("no more"), ""); a.Code != 200 {
		t.Fatal(a.Body)
	}
	if a := s.Do(t, "POST", batches, strings.Replace(batchOf(write("apply", logging)), `{`, `{"message":"all at once",`, 1)); a.Code != 200 {
		t.Fatal(a.Body)
	}
	var messages []string
	for _, r := range readRecords(t, s, "").Items {
		messages = append(messages, r.Message)
	}
	if got := strings.Join(messages, ", "); got != "all at once, no more, a label, für immer" {
		t.Errorf("%s", got)
	}
	for _, bad := range []string{strings.Repeat("x", 1025), "two\nlines", "\xff", "\x1b[31m"} {
		a := s.Do(t, "POST", shopEntries+says(bad), entry("b", ""))
		if status := parse[metav1.Status](t, a.Body); a.Code != 400 || status.Details.Causes[0].Field != "message" {
			t.Errorf("%.10q: %d %s", bad, a.Code, a.Body)
		}
	}
	a := s.Do(t, "POST", batches, strings.Replace(batchOf(write("apply", "{}")), `{`, `{"message":"two\nlines",`, 1))
	if status := parse[metav1.Status](t, a.Body); a.Code != 400 || len(status.Details.Causes) < 2 || status.Details.Causes[0].Field != "message" {
		t.Errorf("batch: %d %s", a.Code, a.Body)
	}
}

// TestListsBeyondTheCache: revisions that the cache has dropped come from the history,
// for one object further back than for many, and no further.
func TestListsBeyondTheCache(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 2, nil)
	for i := range 6 {
		create(t, s, string(rune('a'+i)), "")
	}
	at := func(query string, revision int) (string, int) {
		a := s.Do(t, "GET", entries+"?resourceVersionMatch=Exact&resourceVersion="+strconv.Itoa(revision)+query, "")
		got := parse[list](t, a.Body)
		var names []string
		for _, item := range got.Items {
			names = append(names, item.Metadata.Name)
		}
		if a.Code == 200 && got.Metadata.ResourceVersion != strconv.Itoa(revision) {
			t.Errorf("the list at %d says %s", revision, got.Metadata.ResourceVersion)
		}
		return strings.Join(names, ""), a.Code
	}
	for revision, want := range map[int]string{1: "", 2: "a", 4: "abc", 7: "abcdef"} {
		if names, code := at("", revision); code != 200 || names != want {
			t.Errorf("at %d: %d %q, want %q", revision, code, names, want)
		}
	}
	if names, _ := at("&labelSelector=!x&fieldSelector=metadata.name%3Db", 4); names != "b" {
		t.Errorf("selected: %q", names)
	}
}

// TestListsBeyondTheHistory: they are 410 Expired, and so are lists beyond the cache if
// there is no history.
func TestListsBeyondTheHistory(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(*rest.Options){
		"a short one": func(o *rest.Options) { o.History = short{o.History} },
		"none":        func(o *rest.Options) { o.History = nil },
	} {
		s := resttest.Start(t, 2, configure)
		for i := range 6 {
			create(t, s, string(rune('a'+i)), "")
		}
		a := s.Do(t, "GET", shopEntries+"?resourceVersionMatch=Exact&resourceVersion=2", "")
		if status := parse[metav1.Status](t, a.Body); a.Code != http.StatusGone || status.Reason != metav1.StatusReasonExpired || !strings.Contains(status.Message, "revision 2 ") {
			t.Errorf("%s: %d %s", name, a.Code, a.Body)
		}
	}
	s := resttest.Start(t, 2, func(o *rest.Options) { o.History = short{o.History} })
	for i := range 6 {
		create(t, s, string(rune('a'+i)), "")
	}
	a := s.Do(t, "GET", shopEntries+"?resourceVersionMatch=Exact&resourceVersion=2&fieldSelector=metadata.name%3Da", "")
	if got := parse[list](t, a.Body); a.Code != 200 || len(got.Items) != 1 {
		t.Errorf("one object: %d %s", a.Code, a.Body)
	}
}

// short is a history that reaches back for single objects only.
type short struct{ rest.History }

func (s short) At(ctx context.Context, version string, selection storage.Selection) ([]*config.Config, error) {
	if selection.Name == "" {
		return nil, errors.Join(storage.ErrCompacted)
	}
	return s.History.At(ctx, version, selection)
}
