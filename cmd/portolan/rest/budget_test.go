package rest_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

// TestHostileBodies: a small body can make the server allocate only a bounded amount,
// and the answer says what is wrong. No other test may run meanwhile.
func TestHostileBodies(t *testing.T) {
	s := resttest.Start(t, 0, nil)
	asYAML := func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") }
	asJSON := func(*http.Request) {}
	head := `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[`
	deep := `{"apiVersion":"networking.istio.io/v1alpha3","kind":"EnvoyFilter","metadata":{"name":"a","namespace":"shop"},"spec":{"configPatches":[{"applyTo":"CLUSTER","patch":{"operation":"MERGE","value":` +
		strings.Repeat(`{"a":`, 3_400) + "1" + strings.Repeat("}", 3_400) + "}}]}}"
	filters := shop[:strings.LastIndex(shop, "/v1/")] + "/v1alpha3/namespaces/shop/envoyfilters"
	aliases := "a: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n"
	for _, test := range []struct {
		name, method, path, body string
		as                       func(*http.Request)
		code                     int
		says                     string
	}{
		{"nested deep", "POST", filters, deep, asJSON, 422, "envoyfilter/shop/a is invalid: spec.configPatches[0].patch.value.a.a.a...: is nested 3405 deep"},
		{"nested deep, in YAML", "POST", filters, deep, asYAML, 422, "is nested 3405 deep"},
		{"nested deep, in a batch", "POST", batches, head + `{"verb":"apply","object":` + deep + `}]}`, asJSON, 422, "operations[0].object.spec.configPatches[0].patch.value.a.a.a...: envoyfilter/shop/a: is nested 3405 deep"},
		{"aliases", "POST", shopEntries, aliases, asYAML, 400, "its aliases stand for 1000"},
		{"aliases in a batch", "POST", batches, aliases, asYAML, 400, "its aliases stand for 1000"},
		{"aliases in the options of a delete", "DELETE", shopEntries + "/a", aliases, asYAML, 400, "its aliases stand for 1000"},
		{"many operations", "POST", batches, head + "{}" + strings.Repeat(",{}", 100_001) + "]}", asJSON, 413, "more than 100000 operations"},
		{"many faults", "POST", batches, head + "{}" + strings.Repeat(",{}", 20_000) + "]}", asJSON, 400, "there are more faults"},
		{"many labels that are none", "POST", shopEntries, entry("x", `,"labels":{"a":"b"`+noLabels(20_000)+"}"), asJSON, 422, "there are more faults"},
		{"many values", "POST", shopEntries, "a: [" + strings.Repeat("x,", 1<<20) + "]", asYAML, 413, "values"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			a := s.Do(t, test.method, test.path, test.body, test.as)
			runtime.ReadMemStats(&after)
			if a.Code != test.code || !strings.Contains(parse[metav1.Status](t, a.Body).Message, test.says) {
				t.Errorf("%d %.1000s", a.Code, a.Body)
			}
			if spent := (after.TotalAlloc - before.TotalAlloc) >> 20; spent > 300 || len(a.Body) > 100_000 {
				t.Errorf("%d kB cost %d MiB, and the answer has %d bytes", len(test.body)>>10, spent, len(a.Body))
			}
		})
	}
	if v := s.Store.Version(); v != "1" {
		t.Errorf("the store is at %s", v)
	}
}

func noLabels(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"-%d":"-"`, i)
	}
	return b.String()
}

// TestLargeBodiesShareTheirMemory: clients that begin to send large bodies and go silent
// hold the share of large bodies. A small body is still read at once, and another large
// one as soon as the silent clients have lost their share.
func TestLargeBodiesShareTheirMemory(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	var silent []net.Conn
	for range 4 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", shopEntries, 32<<20, strings.Repeat(" ", 128<<10))
		silent = append(silent, c)
	}
	create(t, s, "small", "")
	if a := s.Do(t, "POST", shopEntries, strings.Repeat(" ", 1<<20)+entry("large", "")); a.Code != 201 {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	for _, c := range silent {
		if response, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || response.StatusCode != http.StatusRequestTimeout {
			t.Errorf("who is silent is told %v, %v", response, err)
		}
	}
}

// TestABodyOfUnknownLength: it is accepted. A request that announces more than the limit
// is answered before it sends the body.
func TestABodyOfUnknownLength(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	if a := s.Do(t, "POST", shopEntries, strings.Repeat(" ", 1<<20)+entry("a", ""), chunked); a.Code != 201 {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", shopEntries, 40<<20)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || response.StatusCode != 413 {
		t.Errorf("%v, %v", response, err)
	}
}
