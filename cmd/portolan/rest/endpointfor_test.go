package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// ofShop permits everything in the namespace shop.
type ofShop struct{}

func (ofShop) Authorize(_ context.Context, _ access.Identity, a access.Request) error {
	if a.Namespace == "shop" {
		return nil
	}
	return fmt.Errorf("no %s of %s.%s/%s in %s", a.Verb, a.Resource, a.Group, a.Name, a.Namespace)
}

// TestEndpointForAKind: users with the right to the verb on the kind may call it, and no
// others; the message goes into the history.
func TestEndpointForAKind(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Authorizer = ofShop{} }, func(s *rest.Server) {
		s.EndpointFor(schema.JoinToken, "create", "POST /apis/portolan.io/v1/namespaces/{namespace}/things/{name}", func(w http.ResponseWriter, r *http.Request) error {
			if r.PathValue("name") == "none" {
				return errors.New("odd")
			}
			rest.WriteJSON(w, http.StatusCreated, storage.OriginOf(r.Context()).Message)
			return nil
		})
	})
	for path, want := range map[string]string{
		"shop/things/a?message=because":       `201 "because"`,
		"shop/things/a":                       `201 ""`,
		"shop/things/none":                    `500 {"`,
		"bank/things/a":                       "403 no create of jointokens.portolan.io/a in bank",
		"shop/things/a?dryRun=All":            "400 dryRun: is no parameter of this path",
		"shop/things/a?message=two%0alines":   "400 is not one line of text",
		"shop/jointokens/a?fieldManager=mine": "405 not allowed",
	} {
		a := s.Do(t, "POST", "/apis/portolan.io/v1/namespaces/"+path, "")
		code, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(a.Code) != code || !strings.Contains(a.Body, text) {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
}
