package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
)

// TestAsk: a question is about the configuration as it is, or as it would be after a batch, which is
// not written. A batch that is not valid, and other methods, are refused.
func TestAsk(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil, func(s *rest.Server) {
		s.Ask("/apis/portolan.io/v1/question", func(r *http.Request, ops []storage.Op) (any, error) {
			out := []string{r.URL.Query().Get("who")}
			for _, op := range ops {
				out = append(out, op.Target().String())
			}
			return out, nil
		})
	})
	const path = "/apis/portolan.io/v1/question?who=me"
	if a := s.Do(t, "GET", path, ""); a.Code != 200 || strings.TrimSpace(a.Body) != `["me"]` {
		t.Errorf("GET: %+v", a)
	}
	if a := s.Do(t, "POST", path, batchOf(write("apply", entry("a", "")))); a.Code != 200 || !strings.Contains(a.Body, "serviceentry/shop/a") {
		t.Errorf("POST: %+v", a)
	}
	if a := s.Do(t, "GET", entries+"/a", ""); a.Code != 404 {
		t.Errorf("the batch is written: %+v", a)
	}
	if a := s.Do(t, "POST", path, batchOf(write("apply", strings.Replace(entry("b", ""), `"number":80`, `"number":800000`, 1)))); a.Code != 422 {
		t.Errorf("a batch that is not valid: %+v", a)
	}
	if a := s.Do(t, "PUT", path, ""); a.Code != 405 {
		t.Errorf("PUT: %+v", a)
	}
}
