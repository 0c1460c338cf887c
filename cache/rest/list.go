package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
)

// list answers with all objects that are selected, as of one revision. It
// returns them all whatever the limit asked for, as the protocol allows.
func (s *Server) list(c *call) error {
	selector, err := parseSelector(c.query)
	if err != nil {
		return err
	}
	if c.query.Get("continue") != "" {
		return badRequest("continue: this server returns whole lists and never gave such a token")
	}
	snapshot, revision, err := s.listed(c)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	head, err := json.Marshal(struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta `json:"metadata"`
	}{c.typeMeta("List"), metav1.ListMeta{ResourceVersion: strconv.FormatInt(revision, 10)}})
	if err != nil {
		return err
	}
	body.Write(bytes.TrimSuffix(head, []byte("}")))
	body.WriteString(`,"items":[`)
	separator := "\n"
	for object := range snapshot.List(c.schema.GroupVersionKind, c.namespace) {
		if !selector.matches(object) {
			continue
		}
		text, err := config.ToJSON(object, c.version)
		if err != nil {
			return err
		}
		body.WriteString(separator)
		body.Write(text)
		separator = ",\n"
	}
	body.WriteString("]}\n")
	writeBody(c.w, http.StatusOK, body.Bytes())
	return nil
}

// listed is the snapshot that a list is of, and the revision it stands for.
func (s *Server) listed(c *call) (*cache.Snapshot, int64, error) {
	revision, err := parseRevision(c.query)
	if err != nil {
		return nil, 0, err
	}
	match := c.query.Get("resourceVersionMatch")
	switch match {
	case "", "NotOlderThan", "Exact":
	default:
		return nil, 0, badRequest(fmt.Sprintf("resourceVersionMatch %q: use NotOlderThan or Exact", match))
	}
	if match == "Exact" && revision == 0 {
		return nil, 0, badRequest("resourceVersionMatch Exact needs a resourceVersion")
	}
	least, err := s.least(c)
	if err != nil {
		return nil, 0, err
	}
	snapshot, err := s.atLeast(c.r.Context(), least)
	if err != nil {
		return nil, 0, err
	}
	if match != "Exact" {
		return snapshot, snapshot.Revision(), nil
	}
	snapshot, ok := s.cache.At(revision)
	if !ok {
		return nil, 0, expired(fmt.Sprintf("revision %d is older than the history that is kept: list without resourceVersion", revision))
	}
	return snapshot, revision, nil
}
