package maintenance

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// CompactPath takes a POST of a Compaction.
const CompactPath = Path + "/compact"

// A Compaction drops everything older than a revision. As the answer it says what was
// done.
type Compaction struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the oldest that can be read afterwards; 0 in the request means the
	// newest.
	Revision int64 `json:"revision"`
	// BeforeBytes and AfterBytes are how much of the database is data; only the answer
	// has them.
	BeforeBytes int64 `json:"beforeBytes,omitempty"`
	AfterBytes  int64 `json:"afterBytes,omitempty"`
}

// Compactor compacts a store that the server maintains.
type Compactor interface {
	// Compact drops all revisions below a revision, 0 for the newest, and returns when
	// their space is free for reuse.
	Compact(ctx context.Context, revision int64) (Compaction, error)
}

func (o Options) compact(w http.ResponseWriter, r *http.Request) error {
	if o.Compactor == nil {
		return unsupported("compact", leftToOwner+"etcdctl compact REVISION")
	}
	var request Compaction
	if err := rest.ReadJSON(w, r, &request); err != nil {
		return err
	}
	if request.Revision < 0 {
		return refusal.BadRequest(fmt.Sprintf("revision: %d is none: use one that the store has, or 0 for the newest", request.Revision))
	}
	done, err := o.Compactor.Compact(r.Context(), request.Revision)
	if err != nil {
		return err
	}
	done.TypeMeta = typeMeta("StoreCompaction")
	rest.WriteJSON(w, http.StatusOK, done)
	return nil
}
