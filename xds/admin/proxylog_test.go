package admin_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/transcript"
)

const goneNode = "sidecar~10.1.0.7~web-2.shop~shop.svc.cluster.local"

// talking is a server whose proxies have said something.
type talking struct {
	holder
	book  *transcript.Book
	ended []string
}

func (s *talking) Transcripts() *transcript.Book { return s.book }

func (s *talking) Disconnect(node string) int {
	s.ended = append(s.ended, node)
	return 1
}

func newTalking(t *testing.T) *talking {
	s := &talking{holder: someHolder(t), book: transcript.NewBook()}
	s.book.Open(s.nodes[1].ID, "here").Sent("CDS", "1", "v", 1, 0, 10)
	s.book.Close(goneNode, s.book.Open(goneNode, "there"), "bye")
	return s
}

var apart = others{{Node: "sidecar~10.1.0.5~far.shop~shop.svc.cluster.local", Server: "cp-2:7/1", API: "http://10.0.0.2:1"}, {Node: goneNode, Seen: time.Unix(0, 0)}}

// TestProxyLogOf: the log of a proxy of this server, and of one that is gone; another server is
// named.
func TestProxyLogOf(t *testing.T) {
	t.Parallel()
	s := newTalking(t)
	serve := admin.ServeProxyLog(s, apart, "cp-1:7/0")
	for name, tc := range map[string]struct {
		query url.Values
		code  int32 // of the error
		says  string
		last  transcript.Event
		count int
	}{
		"one here":              {url.Values{"node": {"edge-1"}}, 0, "", transcript.Sent, 2},
		"after all":             {url.Values{"node": {"edge-1"}, "after": {"2999-01-01T00:00:00Z"}}, 0, "", "", 0},
		"one that says nothing": {url.Values{"node": {"10.1.0.8"}}, 0, "", "", 0},
		"one that is gone":      {url.Values{"node": {"web-2"}, "namespace": {"shop"}}, 0, "", transcript.Ended, 2},
		"gone elsewhere":        {url.Values{"node": {"web-2"}, "namespace": {"bank"}}, 404, "no proxy in namespace bank", "", 0},
		"one of another":        {url.Values{"node": {"far"}}, 421, "connected to another server, cp-2:7/1", "", 0},
		"for another":           {url.Values{"node": {"edge-1"}, "server": {"cp-9"}}, 421, "another server answers here", "", 0},
		"none":                  {url.Values{"node": {"nobody"}}, 404, "no proxy is called nobody", "", 0},
		"no name":               {url.Values{}, 400, admin.ProxyLogPath + "?node=NODE", "", 0},
		"a bad time":            {url.Values{"node": {"edge-1"}, "after": {"noon"}}, 400, `after "noon": give a time`, "", 0},
	} {
		value, err := serve(httptest.NewRequest(http.MethodGet, admin.ProxyLogPath+"?"+tc.query.Encode(), nil))
		if tc.code != 0 {
			var status apierrors.APIStatus
			if !errors.As(err, &status) || status.Status().Code != tc.code || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v, want %d and %s", name, err, tc.code, tc.says)
			}
			continue
		}
		log, _ := value.(admin.ProxyLog)
		if err != nil || log.Items == nil || len(log.Items) != tc.count || tc.count > 0 && log.Items[tc.count-1].Event != tc.last {
			t.Errorf("%s: %v: %+v", name, err, log)
		}
	}
}

// notes are records of the history.
type notes struct {
	err    error
	origin storage.Origin
	about  []config.Key
}

func (n *notes) Note(_ context.Context, _ time.Time, origin storage.Origin, about []config.Key) error {
	n.origin, n.about = origin, about
	return n.err
}

// TestDisconnect: it is recorded who disconnects a proxy, else it stays connected.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		query url.Values
		note  error
		says  string
		ended []string
	}{
		"one here":       {url.Values{"node": {"edge-1"}, "message": {"why"}}, nil, "", []string{"router~10.1.0.9~edge-1.edge~edge.svc.cluster.local"}},
		"no record":      {url.Values{"node": {"edge-1"}}, errors.New("away"), "stays connected, as the store does not record who disconnects it: away", nil},
		"one of another": {url.Values{"node": {"far"}}, nil, "connected to another server", nil},
		"one gone":       {url.Values{"node": {"web-2"}}, nil, "connected to no server", nil},
		"no name":        {url.Values{}, nil, admin.DisconnectPath + "?node=NODE", nil},
		"a long message": {url.Values{"node": {"edge-1"}, "message": {strings.Repeat("x", 1025)}}, nil, "message: has 1025 bytes", nil},
	} {
		s, n := newTalking(t), &notes{err: tc.note}
		r := httptest.NewRequest(http.MethodPost, admin.DisconnectPath+"?"+tc.query.Encode(), nil)
		r = r.WithContext(storage.WithOrigin(t.Context(), storage.Origin{User: "anna"}))
		value, err := admin.Disconnect(s, apart, "cp-1:7/0", n)(r)
		if !slices.Equal(s.ended, tc.ended) {
			t.Errorf("%s: it ended %q", name, s.ended)
		}
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		done, _ := value.(admin.Disconnected)
		if err != nil || done.Streams != 1 || n.origin.User != "anna" || n.origin.Message != "why" || n.about[0].Kind.Kind != admin.DisconnectKind || n.about[0].Name != "edge-1.edge" {
			t.Errorf("%s: %v: %+v, recorded %+v", name, err, done, n)
		}
	}
}
