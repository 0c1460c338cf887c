package rest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// page is the part of a list that a client asks for.
type page struct {
	limit int // of objects; 0 for all
	// after is the Path of the last object of the page before; empty for the first page.
	after string
	// revision is that of the first page; 0 on the first page, and newestRevision.
	revision int64
}

// newestRevision in a token stands for the newest snapshot: the rest of the list is not of
// the revision of its beginning.
const newestRevision = -1

// tokenVersion begins every token, so that another form of tokens can be told from this one.
const tokenVersion = "portolan.io/v1"

// token is what metadata.continue holds. Clients do not look into it.
type token struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	After    string `json:"start"`
}

func (t token) String() string {
	t.Version = tokenVersion
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // the fields are texts and a number
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseToken reads a token for a list of the objects whose Paths begin with a prefix.
func parseToken(text, prefix string) (token, error) {
	var out token
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(decoded, &out)
	}
	switch {
	case err != nil || out.Version != tokenVersion || out.After == "" || out.Revision < newestRevision || out.Revision == 0:
		return token{}, refusal.BadRequest("continue: the token is none of this server: use metadata.continue of the page before, or leave it out to list from the beginning")
	case !strings.HasPrefix(out.After, prefix):
		return token{}, refusal.BadRequest("continue: the token is of another list: use it with the path and the namespace of the page before")
	}
	return out, nil
}

// parsePage reads limit and continue of a list.
func parsePage(c *call) (page, error) {
	var out page
	if text := c.query.Get("limit"); text != "" {
		limit, err := strconv.ParseInt(text, 10, 64)
		if err != nil || limit < 0 {
			return page{}, refusal.BadRequest(fmt.Sprintf("limit %q is no number of objects: use one from 0, which is for all", text))
		}
		out.limit = int(limit)
	}
	text := c.query.Get("continue")
	if text == "" {
		return out, nil
	}
	for _, name := range []string{"resourceVersion", "resourceVersionMatch", "consistent"} {
		if value := c.query.Get(name); value != "" && value != "0" {
			return page{}, refusal.BadRequest(fmt.Sprintf("specifying %s is not allowed when using continue: the token holds the resource version of the list", name))
		}
	}
	next, err := parseToken(text, c.prefix())
	out.after, out.revision = next.After, next.Revision
	return out, err
}

// prefix begins the Paths of the objects that the call lists.
func (c *call) prefix() string {
	if c.namespace == "" {
		return config.KindPath(c.schema.GroupVersionKind)
	}
	return config.NamespacePath(c.schema.GroupVersionKind, c.namespace)
}

// tooOld refuses a page of a revision that is not known any more. As in Kubernetes the answer
// has a token for the rest of the list, as it is now.
func (p page) tooOld() *apierrors.StatusError {
	err := refusal.New(http.StatusGone, metav1.StatusReasonExpired, fmt.Sprintf(
		"The provided continue parameter is too old to display a consistent list result: revision %d is not known any more. "+
			"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "+
			"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between "+
			"the time the first chunk was returned and now may show up in the list.", p.revision))
	err.ErrStatus.Continue = token{Revision: newestRevision, After: p.after}.String()
	return err
}
