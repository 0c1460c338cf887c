package rest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestHistoryKnowsWhoWrote: a change through the API is recorded with its user,
// address and tool.
func TestHistoryKnowsWhoWrote(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	body := `{"apiVersion":"networking.istio.io/v1","kind":"Sidecar","metadata":{"name":"x","namespace":"shop"},"spec":{"egress":[{"hosts":["*/*"]}]}}`
	q, err := http.NewRequest(http.MethodPost, s.URL+"/apis/networking.istio.io/v1/namespaces/shop/sidecars", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("User-Agent", "tool/1")
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	changes, err := s.Store.History(context.Background(), config.Key{Kind: schema.Sidecar, Namespace: "shop", Name: "x"}, 0)
	if err != nil || len(changes) != 1 {
		t.Fatalf("%d changes, %v (status %s)", len(changes), err, response.Status)
	}
	o := changes[0].Origin
	if o.User != "local" || o.Tool != "tool/1" || !strings.HasPrefix(o.Address, "127.0.0.1:") {
		t.Errorf("the origin is %+v", o)
	}
}
