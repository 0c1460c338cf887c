package maintenance

import (
	"net/http"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// Disconnect adds the Private path that ends the streams of a proxy.
func Disconnect(api *rest.Server, disconnect func(*http.Request) (any, error)) {
	endpoint(api, admin.DisconnectPath, methods{http.MethodPost: api.Private(func(w http.ResponseWriter, r *http.Request) error {
		answer, err := disconnect(r)
		if err == nil {
			rest.WriteJSON(w, http.StatusOK, answer)
		}
		return err
	})})
}
