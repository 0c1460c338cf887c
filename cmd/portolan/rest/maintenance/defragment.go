package maintenance

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
)

// DefragmentPath takes a POST: the store then frees unused space, and the answer is a
// Defragmentation.
const DefragmentPath = Path + "/defragment"

// A Defragmentation is the result of one.
type Defragmentation struct {
	metav1.TypeMeta `json:",inline"`
	// BeforeBytes and AfterBytes are the sizes of the database.
	BeforeBytes int64   `json:"beforeBytes"`
	AfterBytes  int64   `json:"afterBytes"`
	Seconds     float64 `json:"seconds"`
}

// Defragmenter defragments a store that the server maintains.
type Defragmenter interface {
	Defragment(context.Context) (Defragmentation, error)
}

func (o Options) defragment(w http.ResponseWriter, r *http.Request) error {
	if o.Defragmenter == nil {
		return unsupported("defragment", leftToOwner+"etcdctl defrag")
	}
	if err := rest.ReadJSON(w, r, &struct{}{}); err != nil {
		return err
	}
	done, err := o.Defragmenter.Defragment(r.Context())
	if err != nil {
		return err
	}
	done.TypeMeta = typeMeta("StoreDefragmentation")
	rest.WriteJSON(w, http.StatusOK, done)
	return nil
}
