package maintenance_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage"
)

func TestLogLevels(t *testing.T) {
	t.Parallel()
	fake := &store{}
	server, c := start(t, all(fake), func(o *rest.Options) { o.Authenticator = anybody{} })
	list, err := c.LogLevels(t.Context())
	if err != nil || list.Kind != "LogLevels" || len(list.Items) != 2 || list.Items[1].Level != "warn" {
		t.Errorf("the levels are %+v, %v", list, err)
	}
	for _, in := range []maintenance.LogLevelChange{{Levels: "xds=debug", For: "10m"}, {Levels: "xds=debug"}} {
		want := map[string]string{"10m": "xds=debug for 10m0s", "": "xds=debug for 0s"}[in.For]
		if done, err := c.SetLogLevels(t.Context(), in); err != nil || len(done.Items) != 1 || done.Items[0].Was != "warn" || fake.levels != want {
			t.Errorf("%+v: %+v, %v; asked for %s", in, done, err, fake.levels)
		}
	}
	fake.err, fake.levels = fmt.Errorf("%w: levels: there is no component", storage.ErrInvalid), ""
	if _, err := c.SetLogLevels(t.Context(), maintenance.LogLevelChange{Levels: "x=debug"}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "there is no component") {
		t.Errorf("a fault: %v", err)
	}
	fake.levels = ""
	for _, body := range []string{`{"levels":"info","for":"soon"}`, `{"levels":"info","for":"-1s"}`, `{"levels":"info","for":"0"}`, `{"level":"info"}`, `{"levels":`, `[]`} {
		if a := server.Do(t, http.MethodPost, maintenance.LogLevelsPath, body); a.Code != 400 || fake.levels != "" {
			t.Errorf("%s: %+v, asked for %q", body, a, fake.levels)
		}
	}
	if a := server.Do(t, http.MethodPut, maintenance.LogLevelsPath, "{}"); a.Code != 405 || a.Header.Get("Allow") != "GET, POST" {
		t.Errorf("PUT: %+v", a)
	}
}
