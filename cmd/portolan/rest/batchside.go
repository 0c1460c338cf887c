package rest

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
)

// A batch is of one store: that of the mesh or the one beside it. Its first operation says which.

// keeping returns the server whose store a batch is for.
func (s *Server) keeping(operations []batch.Operation) *Server {
	if len(operations) > 0 && s.side != nil && s.side.knows(typeOf(operations[0])) {
		return s.side
	}
	return s
}

func (s *Server) knows(of metav1.TypeMeta) bool {
	_, err := s.schemas.Resolve(of.APIVersion, of.Kind)
	return err == nil
}

// typeOf returns what an operation says of the kind of its object.
func typeOf(operation batch.Operation) metav1.TypeMeta {
	var out metav1.TypeMeta
	if json.Unmarshal(operation.Object, &out) != nil {
		return metav1.TypeMeta{APIVersion: operation.APIVersion, Kind: operation.Kind}
	}
	return out
}

// elsewhere says whether a kind is of the other store, and reports that of an operation.
func (b *batchCall) elsewhere(i int, of metav1.TypeMeta) bool {
	other, side := b.server.side, b.server.side
	if b.server.main != nil {
		other, side = b.server.main, b.server
	}
	if other == nil || !other.knows(of) {
		return false
	}
	var kinds []string
	for _, kind := range side.schemas.All() {
		kinds = append(kinds, kind.Kind)
	}
	b.faults.mayNotBe(batch.Field(i, ""), fmt.Sprintf("%s: a batch is one change of one store, and %s are in a store beside the mesh: send them in a batch of their own",
		of.Kind, strings.Join(kinds, ", ")))
	return true
}
