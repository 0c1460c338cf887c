package rest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

// names returns the names in a list, as "shop/a shop/b".
func names(l list) string {
	var out []string
	for _, item := range l.Items {
		out = append(out, item.Metadata.Namespace+"/"+item.Metadata.Name)
	}
	return strings.Join(out, " ")
}

// nextPage asks for the page after a list.
func nextPage(l list, query string) string {
	return "?" + query + "&continue=" + url.QueryEscape(l.Metadata.Continue)
}

// TestPages: the pages of a list are of the revision of the first one, whatever changes
// meanwhile, and together have each object once.
func TestPages(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		create(t, s, name, fmt.Sprintf(`,"labels":{"odd":%q}`, strconv.FormatBool(name < "d")))
	}
	first := parse[list](t, s.Do(t, "GET", entries+"?limit=2", "").Body)
	if names(first) != "shop/a shop/b" || *first.Metadata.RemainingItemCount != 3 {
		t.Fatalf("first page: %+v", first)
	}
	s.Do(t, "DELETE", shopEntries+"/c", "")
	create(t, s, "bb", "")
	second := parse[list](t, s.Do(t, "GET", entries+nextPage(first, "limit=2"), "").Body)
	if names(second) != "shop/c shop/d" || *second.Metadata.RemainingItemCount != 1 || second.Metadata.ResourceVersion != first.Metadata.ResourceVersion {
		t.Fatalf("second page: %+v", second)
	}
	last := parse[list](t, s.Do(t, "GET", entries+nextPage(second, "limit=2"), "").Body)
	if names(last) != "shop/e" || last.Metadata.Continue != "" || last.Metadata.RemainingItemCount != nil {
		t.Errorf("last page: %+v", last)
	}
	rest := parse[list](t, s.Do(t, "GET", entries+nextPage(first, "limit=0"), "").Body)
	if names(rest) != "shop/c shop/d shop/e" || rest.Metadata.Continue != "" {
		t.Errorf("all the rest: %+v", rest)
	}
	selected := parse[list](t, s.Do(t, "GET", entries+"?limit=1&labelSelector=odd%3Dtrue", "").Body)
	if names(selected) != "shop/a" || selected.Metadata.Continue == "" || selected.Metadata.RemainingItemCount != nil {
		t.Errorf("a selection: %+v", selected)
	}
	selected = parse[list](t, s.Do(t, "GET", entries+nextPage(selected, "limit=1&labelSelector=odd%3Dtrue"), "").Body)
	if names(selected) != "shop/b" || selected.Metadata.Continue != "" {
		t.Errorf("the last of a selection: %+v", selected)
	}
	rows := parse[metav1Table](t, s.Do(t, "GET", entries+"?limit=2", "", accept(tableAccept)).Body)
	if len(rows.Rows) != 2 || rows.Metadata.Continue == "" || *rows.Metadata.RemainingItemCount != 3 {
		t.Errorf("a page of a Table: %+v", rows)
	}
}

// TestPagesBeyondTheCache: where the cache has forgotten the revision of the first page, the
// history answers; without one the answer is 410, and has a token for the rest as it is now.
func TestPagesBeyondTheCache(t *testing.T) {
	t.Parallel()
	for _, history := range []bool{true, false} {
		s := resttest.Start(t, 2, func(o *rest.Options) {
			if !history {
				o.History = nil
			}
		})
		for _, name := range []string{"a", "b", "c"} {
			create(t, s, name, "")
		}
		first := parse[list](t, s.Do(t, "GET", entries+"?limit=1", "").Body)
		s.Do(t, "DELETE", shopEntries+"/b", "")
		create(t, s, "d", "")
		create(t, s, "e", "")
		a := s.Do(t, "GET", entries+nextPage(first, "limit=5"), "")
		if history {
			if got := parse[list](t, a.Body); a.Code != 200 || names(got) != "shop/b shop/c" || got.Metadata.ResourceVersion != first.Metadata.ResourceVersion {
				t.Errorf("from the history: %d %s", a.Code, a.Body)
			}
			continue
		}
		status := parse[metav1.Status](t, a.Body)
		if !apierrors.IsResourceExpired(&apierrors.StatusError{ErrStatus: status}) || a.Code != 410 || status.Continue == "" ||
			!strings.Contains(status.Message, "You can start a new list without the continue parameter") {
			t.Errorf("%d %s", a.Code, a.Body)
		}
		now := parse[list](t, s.Do(t, "GET", entries+"?continue="+status.Continue, "").Body)
		if names(now) != "shop/c shop/d shop/e" || now.Metadata.ResourceVersion != s.Store.Version() {
			t.Errorf("the rest, as it is now: %+v", now)
		}
	}
}

// TestPagesOfSeveralSources: the history has the objects of the store alone, so it does not
// answer for pages that have others, too.
func TestPagesOfSeveralSources(t *testing.T) {
	t.Parallel()
	s, _ := resttest.StartBeside(t, false, entry("file", ""))
	create(t, s, "a", "")
	create(t, s, "b", "")
	first := parse[list](t, s.Do(t, "GET", entries+"?limit=1", "").Body)
	if got := parse[list](t, s.Do(t, "GET", entries+nextPage(first, "limit=9"), "").Body); names(got) != "shop/b shop/file" {
		t.Errorf("%+v", got)
	}
}

func TestPageParameters(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	for _, name := range []string{"a", "b"} {
		create(t, s, name, "")
	}
	first := parse[list](t, s.Do(t, "GET", shopEntries+"?limit=1", "").Body)
	good := url.QueryEscape(first.Metadata.Continue)
	of := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for query, want := range map[string]string{
		"?limit=-1":   "limit",
		"?limit=many": "limit",
		"?continue=x": "none of this server",
		"?continue=" + of(`{"v":"meta.k8s.io/v1","rv":2,"start":"a\u0000"}`):                                  "none of this server",
		"?continue=" + of(`{"v":"portolan.io/v1","rv":-2,"start":"networking.istio.io/ServiceEntry/shop/a"}`): "none of this server",
		"?continue=" + of(`{"v":"portolan.io/v1","rv":2,"start":"networking.istio.io/Gateway/shop/a"}`):       "of another list",
		"?continue=" + of(`{"v":"portolan.io/v1","rv":2,"start":"networking.istio.io/ServiceEntry/bank/a"}`):  "of another list",
		"?continue=" + of(`{"v":"portolan.io/v1","rv":99,"start":"networking.istio.io/ServiceEntry/shop/a"}`): "in the future",
		"?resourceVersion=1&continue=" + good:                                                                 "specifying resourceVersion is not allowed when using continue",
		"?resourceVersion=1&resourceVersionMatch=Exact&continue=" + good:                                      "is not allowed when using continue",
		"?resourceVersion=0&resourceVersionMatch=NotOlderThan&continue=" + good:                               "specifying resourceVersionMatch is not allowed",
	} {
		if a := s.Do(t, "GET", shopEntries+query, ""); a.Code != 400 || !strings.Contains(a.Body, want) {
			t.Errorf("%s: %d %s", query, a.Code, a.Body)
		}
	}
	if a := s.Do(t, "GET", shopEntries+"?resourceVersion=0&continue="+good, ""); a.Code != 200 || names(parse[list](t, a.Body)) != "shop/b" {
		t.Errorf("resourceVersion=0: %d %s", a.Code, a.Body)
	}
}

// FuzzReadParameters: whatever a client puts into Accept and the parameters of a list, the
// answer is a list that can be read, or says that the client is wrong.
func FuzzReadParameters(f *testing.F) {
	f.Add("application/json", "", "1")
	f.Add(tableAccept, base64.RawURLEncoding.EncodeToString([]byte(`{"v":"portolan.io/v1","rv":-1,"start":"networking.istio.io/ServiceEntry/shop/a"}`)), "")
	f.Add("a/b;q=2;as=Table;g=,*/*;q", base64.RawURLEncoding.EncodeToString([]byte(`{"rv":1}`)), "-1")
	f.Add("application/yaml;pretty=1,;,//", "=", "9223372036854775807")
	s := resttest.Start(f, 0, nil)
	for _, name := range []string{"a", "b"} {
		if a := s.Do(f, "POST", shopEntries, entry(name, "")); a.Code != 201 {
			f.Fatal(a.Body)
		}
	}
	f.Fuzz(func(t *testing.T, header, next, limit string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.URL.Path, r.URL.RawQuery = shopEntries, url.Values{"continue": {next}, "limit": {limit}}.Encode()
		r.Header.Set("Accept", header)
		w := httptest.NewRecorder()
		s.REST.Handler().ServeHTTP(w, r)
		switch w.Code {
		case 200:
			if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
				t.Errorf("Accept %q, continue %q, limit %q: %s", header, next, limit, w.Body)
			}
		case 400, 406, 410:
		default:
			t.Errorf("Accept %q, continue %q, limit %q: %d %s", header, next, limit, w.Code, w.Body)
		}
	})
}
