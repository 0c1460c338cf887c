package admin_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// one has one object, of a file.
type one struct{ object *config.Config }

func (o one) Snapshot() *cache.Snapshot {
	return cache.NewSnapshot(7, pmap.Map[*config.Config]{}.Set(o.object.Key().Path(), o.object))
}

func (one) StoreRevision(context.Context) (int64, error) { return 7, nil }

// placed knows where the object stands.
type placed struct{ one }

func (placed) Place(config.Key) string { return "shop/pay.yaml" }

// TestNoRevisionIsOfAFile: who asks how far an object of a file has come is told where
// the object comes from.
func TestNoRevisionIsOfAFile(t *testing.T) {
	t.Parallel()
	of := one{&config.Config{Meta: config.Meta{GroupVersionKind: schema.VirtualService, Namespace: "shop", Name: "pay", Source: "conf", ResourceVersion: "f1"}}}
	query := "?group=networking.istio.io&kind=VirtualService&namespace=shop&name=pay"
	for want, objects := range map[string]admin.Objects{
		"virtualservice/shop/pay comes from the source conf: wait counts changes of the store; see portolan proxy status":                 of,
		"virtualservice/shop/pay comes from the source conf (shop/pay.yaml): wait counts changes of the store; see portolan proxy status": placed{of},
	} {
		err := admin.ServePropagation(nil, objects)(httptest.NewRecorder(), httptest.NewRequest("GET", admin.PropagationPath+query, nil))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
