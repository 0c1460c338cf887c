package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// TestReservedObjects: no request writes them, and only the server's user deletes them.
func TestReservedObjects(t *testing.T) {
	t.Parallel()
	open := true
	s := resttest.Start(t, 0, func(o *rest.Options) {
		o.Reserved = func(op storage.Op, stored *config.Config) error {
			if open || op.Target().Name != "keys" || op.Verb == storage.Update && stored == nil {
				return nil
			}
			return fmt.Errorf("%w: it is for servers", storage.ErrReadOnly)
		}
	})
	body := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"keys","namespace":"shop"},"stringData":{"a":"b"}}`
	if a := s.Do(t, "POST", shopSecrets, body); a.Code != 201 {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	open = false
	changed := strings.Replace(body, `"b"`, `"c"`, 1)
	for name, c := range map[string]struct{ method, path, body string }{
		"create":     {"POST", shopSecrets, body},
		"replace":    {"PUT", shopSecrets + "/keys", changed},
		"dry run":    {"PUT", shopSecrets + "/keys?dryRun=All", changed},
		"delete":     {"DELETE", shopSecrets + "/keys", ""},
		"in a batch": {"POST", "/apis/portolan.io/v1/batches", batchOf(write("apply", changed))},
	} {
		for where, by := range map[string]*resttest.Server{"port": s, "socket": s.Local()} {
			if name == "delete" && where == "socket" {
				continue
			}
			a := by.Do(t, c.method, c.path, c.body)
			if a.Code != http.StatusForbidden || !strings.Contains(a.Body, "it is for servers") {
				t.Errorf("%s over the %s: %d %s", name, where, a.Code, a.Body)
			}
			if name == "delete" && !strings.Contains(a.Body, "api.sock") {
				t.Errorf("%s does not say where: %s", name, a.Body)
			}
		}
	}
	if a := s.Do(t, "POST", shopSecrets, strings.Replace(body, "keys", "others", 1)); a.Code != 201 {
		t.Errorf("another: %d %s", a.Code, a.Body)
	}
	if a := s.Local().Do(t, "DELETE", shopSecrets+"/keys", ""); a.Code != 200 {
		t.Errorf("the user of the server: %d %s", a.Code, a.Body)
	}
}
