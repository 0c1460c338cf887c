package rest_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

// TestBatchOfSideKinds: the kinds beside those of the mesh go in batches of their own, of which each
// is done as a whole. One that a batch cannot do leaves everything as it is.
func TestBatchOfSideKinds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		operations []string
		code       int
		says       string
		made       bool // the ConfigMap x
	}{
		"several": {[]string{write("apply", namespaceText("shop", `{"a":"b"}`)), write("apply", configMap("x", `{"a":"b"}`)), write("create", leaseText), write("create", eventText)}, 200, `"kind":"Lease","namespace":"shop","name":"x","outcome":"created"`, true},
		"a fault": {[]string{write("apply", configMap("x", `{}`)), write("apply", configMap("y", `{"a/b":"c"}`))}, 422, `operations[1].object.data[a/b]: configmap/shop/y`, false},
		"one of the mesh": {[]string{write("apply", configMap("x", `{}`)), write("apply", entry("x", ""))}, 422,
			`operations[1]: ServiceEntry: a batch is one change of one store, and ConfigMap, Event, Namespace, Lease are in a store beside the mesh: send them in a batch of their own`, false},
		"one beside the mesh":    {[]string{write("apply", entry("x", "")), write("apply", configMap("x", `{}`))}, 422, `operations[1]: ConfigMap: a batch is one change of one store`, false},
		"a delete of the other":  {[]string{write("apply", entry("x", "")), `{"verb":"delete","apiVersion":"v1","kind":"ConfigMap","namespace":"shop","name":"x"}`}, 422, `operations[1]: ConfigMap: a batch is`, false},
		"the end of a namespace": {[]string{write("apply", configMap("x", `{}`)), `{"verb":"delete","apiVersion":"v1","kind":"Namespace","name":"shop"}`}, 422, `portolan delete namespace shop`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := resttest.Start(t, 0, nil)
			a := s.Do(t, "POST", batches, batchOf(tc.operations...))
			if a.Code != tc.code || !strings.Contains(a.Body, tc.says) {
				t.Errorf("%d %s, want %d and %q", a.Code, a.Body, tc.code, tc.says)
			}
			if a := s.Do(t, "GET", configMaps+"/x", ""); (a.Code == 200) != tc.made {
				t.Errorf("then it is %d %s", a.Code, a.Body)
			}
			if a := s.Do(t, "GET", entries, ""); !strings.Contains(a.Body, `"items":[]`) {
				t.Errorf("the mesh has %s", a.Body)
			}
		})
	}
}

// TestTrialOfSideKinds: a dry run of such a batch shows what would be, and writes nothing.
func TestTrialOfSideKinds(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	if a := s.Do(t, "POST", configMaps, configMap("x", `{"a":"b"}`)); a.Code != 201 {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	a := s.Do(t, "POST", batches+"?dryRun=All&preview=proxies", batchOf(write("apply", configMap("x", `{"a":"c"}`)), write("apply", configMap("y", `{}`))))
	results := parse[batch.Result](t, a.Body).Results
	if a.Code != 200 || len(results) != 2 || results[0].Outcome != "configured" || results[1].Outcome != "created" || !strings.Contains(string(results[0].After), `"a":"c"`) {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "GET", configMaps, ""); !strings.Contains(a.Body, `"a":"b"`) || strings.Contains(a.Body, `"y"`) {
		t.Errorf("there are %s", a.Body)
	}
}
