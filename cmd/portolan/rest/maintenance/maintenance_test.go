package maintenance_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs an API with a store that has the capabilities in o.
func start(t *testing.T, o maintenance.Options, configure func(*rest.Options)) (*resttest.Server, remote.Server) {
	t.Helper()
	s := resttest.Start(t, 0, configure, func(api *rest.Server) { maintenance.Register(api, o) })
	c, err := client.New(s.URL, call.Options{HTTP: s.HTTP})
	if err != nil {
		t.Fatal(err)
	}
	return s, remote.Server{Client: c}
}

// store implements all capabilities, as its fields say.
type store struct {
	body io.Reader
	err  error
	got  int64 // revision of the compaction
	// levels are those that were set, and for how long
	levels string
}

func (s *store) StoreStatus(context.Context) maintenance.Status {
	return maintenance.Status{Cache: maintenance.CacheStatus{Revision: 7}, Problems: []string{"one"}}
}

func (s *store) Snapshot(context.Context) (maintenance.Snapshot, error) {
	return maintenance.Snapshot{Body: io.NopCloser(s.body), Revision: 41}, s.err
}

func (s *store) Compact(_ context.Context, revision int64) (maintenance.Compaction, error) {
	s.got = revision
	return maintenance.Compaction{Revision: 40}, s.err
}

func (s *store) Defragment(context.Context) (maintenance.Defragmentation, error) {
	return maintenance.Defragmentation{BeforeBytes: 2, AfterBytes: 1}, s.err
}

func (s *store) LogLevels() []maintenance.LogLevel {
	return []maintenance.LogLevel{{Component: "api", Level: "info", Was: "info"}, {Component: "xds", Level: "warn", Was: "warn"}}
}

func (s *store) SetLogLevels(_ context.Context, levels string, limit time.Duration) ([]maintenance.LogLevel, error) {
	s.levels = levels + " for " + limit.String()
	return []maintenance.LogLevel{{Component: "xds", Level: "debug", Was: "warn"}}, s.err
}

func all(s *store) maintenance.Options {
	return maintenance.Options{Status: s, Snapshots: s, Compactor: s, Defragmenter: s, Logs: s}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	fake := &store{}
	_, c := start(t, all(fake), nil)
	status, err := c.StoreStatus(t.Context())
	if err != nil || status.Kind != "StoreStatus" || status.Cache.Revision != 7 || len(status.Problems) != 1 {
		t.Errorf("status: %+v, %v", status, err)
	}
	if done, err := c.CompactStore(t.Context(), 39); err != nil || done.Revision != 40 || fake.got != 39 {
		t.Errorf("compact: %+v, %v; asked for %d", done, err, fake.got)
	}
	if done, err := c.DefragmentStore(t.Context()); err != nil || done.AfterBytes != 1 {
		t.Errorf("defragment: %+v, %v", done, err)
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	fake.body = iotest.OneByteReader(bytes.NewReader(content[:100]))
	for _, body := range []io.Reader{fake.body, iotest.DataErrReader(bytes.NewReader(content))} {
		fake.body = body
		snapshot, err := c.StoreSnapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(snapshot.Body)
		if err != nil || snapshot.Revision != 41 || !bytes.HasPrefix(content, got) || len(got) < 100 {
			t.Errorf("snapshot: %d bytes, revision %d, %v", len(got), snapshot.Revision, err)
		}
		_ = snapshot.Body.Close()
	}
}

// TestASnapshotThatBreaksOffIsNoSnapshot: a failure before the first byte is an error
// answer. After a later failure no client takes the snapshot for whole.
func TestASnapshotThatBreaksOffIsNoSnapshot(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	fake := &store{body: iotest.ErrReader(broken)}
	_, c := start(t, all(fake), nil)
	if _, err := c.StoreSnapshot(t.Context()); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("at once: %v", err)
	}
	fake.body = io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), iotest.ErrReader(broken))
	snapshot, err := c.StoreSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Body.Close() }()
	var unreachable *call.UnreachableError
	if _, err := io.Copy(io.Discard, snapshot.Body); !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "ended early") {
		t.Errorf("midway: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s, c := start(t, maintenance.Options{}, nil)
	_, compact := c.CompactStore(t.Context(), 0)
	_, defragment := c.DefragmentStore(t.Context())
	for words, err := range map[string]error{"etcdctl compact": compact, "etcdctl defrag": defragment} {
		if !apierrors.IsMethodNotSupported(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("of a store of others: %v", err)
		}
	}
	if a := s.Do(t, http.MethodPut, maintenance.StatusPath, "{}"); a.Code != 405 || a.Header.Get("Allow") != "GET" {
		t.Errorf("PUT: %+v", a)
	}
	full := &store{err: storage.ErrUnavailable}
	s, c = start(t, all(full), nil)
	if _, err := c.CompactStore(t.Context(), 0); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a store that is away: %v", err)
	}
	for body, code := range map[string]int{`{"revision":-1}`: 400, `{"revison":1}`: 400, `{"revision":1}`: 503, `{}{}`: 400} {
		if a := s.Local().Do(t, http.MethodPost, maintenance.CompactPath, body); a.Code != code || !strings.Contains(a.Body, `"kind":"Status"`) {
			t.Errorf("%s: %+v", body, a)
		}
	}
}

// nobody refuses everything.
type nobody struct{}

func (nobody) Authorize(_ context.Context, _ access.Identity, a access.Request) error {
	return errors.New("not " + a.Verb + " " + a.Path)
}

func TestTheAPIGuardsIt(t *testing.T) {
	t.Parallel()
	fake := &store{body: strings.NewReader("secret")}
	s, _ := start(t, all(fake), func(o *rest.Options) { o.Authorizer = nobody{} })
	for path, method := range map[string]string{
		maintenance.StatusPath: http.MethodGet, maintenance.SnapshotPath: http.MethodGet,
		maintenance.CompactPath: http.MethodPost, maintenance.DefragmentPath: http.MethodPost, maintenance.LogLevelsPath: http.MethodPost,
	} {
		if a := s.Local().Do(t, method, path, ""); a.Code != http.StatusForbidden || !strings.Contains(a.Body, "not "+strings.ToLower(method)) {
			t.Errorf("%s %s: %+v", method, path, a)
		}
	}
	if a := s.Local().Do(t, http.MethodGet, maintenance.SnapshotPath, "", func(r *http.Request) { r.Host = "evil.example" }); a.Code != http.StatusForbidden {
		t.Errorf("a page that points its name here: %+v", a)
	}
}

// anybody believes every client who it says it is.
type anybody struct{}

func (anybody) Authenticate(*http.Request) (access.Identity, error) {
	return access.Identity{User: "a"}, nil
}

// private has the paths that only the server's user may call, each with a method.
var private = map[string]string{
	maintenance.SnapshotPath: http.MethodGet, maintenance.CompactPath: http.MethodPost, maintenance.DefragmentPath: http.MethodPost,
	maintenance.QuarantinePath: http.MethodDelete, maintenance.MembersPath: http.MethodGet, maintenance.MembersPath + "/": http.MethodPost,
	maintenance.LogLevelsPath: http.MethodPost, maintenance.MembersPath + "/cp-1": http.MethodDelete, maintenance.MembersPath + "/cp-1/promote": http.MethodPost,
}

// TestWhatIsPrivate: other users of the machine, who reach the port, learn where it is
// served, and nothing is done.
func TestWhatIsPrivate(t *testing.T) {
	t.Parallel()
	fake := &store{body: strings.NewReader("secret")}
	s, _ := start(t, all(fake), nil)
	for path, method := range private {
		path, fake.got, fake.levels = strings.TrimSuffix(path, "/"), -1, ""
		a := s.Do(t, method, path, "")
		if a.Code != http.StatusForbidden || !strings.Contains(a.Body, "unix socket") || !strings.Contains(a.Body, "curl --unix-socket") || fake.got != -1 || fake.levels != "" {
			t.Errorf("%s %s: %+v", method, path, a)
		}
		if a := s.Local().Do(t, method, path, ""); a.Code == http.StatusForbidden {
			t.Errorf("%s %s over the socket: %+v", method, path, a)
		}
		another := func(r *http.Request) { r.Header.Set(socket.ServerHeader, "another") }
		if a := s.Local().Do(t, method, path, "", another); a.Code != http.StatusMisdirectedRequest {
			t.Errorf("%s %s for another server: %+v", method, path, a)
		}
	}
	for _, path := range []string{maintenance.StatusPath, maintenance.QuarantinePath, maintenance.FormatPath, maintenance.LogLevelsPath} {
		if a := s.Do(t, http.MethodGet, path, ""); a.Code == http.StatusForbidden {
			t.Errorf("GET %s: %+v", path, a)
		}
	}
	s, _ = start(t, all(fake), func(o *rest.Options) { o.Authenticator = anybody{} })
	if a := s.Do(t, http.MethodPost, maintenance.DefragmentPath, ""); a.Code != http.StatusOK {
		t.Errorf("where there are users: %+v", a)
	}
}

// TestASocketThatIsNotThere: a server without a socket, and one on another machine.
func TestASocketThatIsNotThere(t *testing.T) {
	t.Parallel()
	for words, configure := range map[string]func(*rest.Options){
		"start it with --api-socket FILE": func(o *rest.Options) { o.Socket = "" },
		"there is no /nowhere/api.sock":   func(o *rest.Options) { o.Socket = "/nowhere/api.sock" },
	} {
		_, c := start(t, all(&store{}), configure)
		_, err := c.DefragmentStore(t.Context())
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}
