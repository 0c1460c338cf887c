package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// agoNow matches the age of what a test has just done.
// transcript collects the output of a running command.
type transcript struct {
	mu    sync.Mutex
	text  bytes.Buffer  // guarded by mu
	wrote chan struct{} // has a token after each write
}

func newTranscript() *transcript { return &transcript{wrote: make(chan struct{}, 1)} }

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until a text was written.
func (s *transcript) await(t *testing.T, ctx context.Context, want string) {
	t.Helper()
	for !strings.Contains(s.String(), want) {
		select {
		case <-ctx.Done():
			t.Fatalf("%q was not written, but:\n%s", want, s)
		case <-s.wrote:
		}
	}
}

type runningWatch struct {
	t        *testing.T
	ctx      context.Context
	out, err *transcript
	stop     func() int
}

func follow(t *testing.T, url string, args ...string) *runningWatch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	f := &runningWatch{t: t, ctx: ctx, out: newTranscript(), err: newTranscript()}
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(ctx, cli.Program(line), append([]string{"get", "-w", "--server", url}, args...), strings.NewReader(""), f.out, f.err)
	}()
	f.stop = sync.OnceValue(func() int {
		cancel()
		return <-done
	})
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *runningWatch) awaitOutput(want string) {
	f.t.Helper()
	f.out.await(f.t, f.ctx, want)
}

// rowEnds matches the ages at the ends of rows.
var rowEnds = regexp.MustCompile(`(?m)\d+s$`)

// TestGetWatch: first come the existing objects, then each change, below one header.
func TestGetWatch(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ", labels: {team: a}")+"---\n"+clitest.Entry("other", ", labels: {team: z}"), "apply", "-f", "-")
	f := follow(t, a.URL, "se", "-l", "team in (a, b)", "--output-watch-events")
	f.awaitOutput("ADDED     x ")
	a.Must(t, clitest.Entry("longer-name", ", labels: {team: b}"), "apply", "-f", "-")
	f.awaitOutput("longer-name")
	a.Must(t, clitest.Entry("x", ", labels: {team: a, more: b}"), "apply", "-f", "-")
	f.awaitOutput("MODIFIED  x")
	a.Must(t, clitest.Entry("other", ", labels: {team: k}"), "apply", "-f", "-")
	a.Must(t, "", "delete", "se", "x")
	f.awaitOutput("DELETED   x")
	if code := f.stop(); code != exit.OK || f.err.String() != "" {
		t.Errorf("exit code %d: %s", code, f.err)
	}
	clitest.Same(t, "table", rowEnds.ReplaceAllString(f.out.String(), "0s"), ""+
		"EVENT     NAME  HOSTS   PORTS    RESOLUTION  ENDPOINTS  REV  AGE\n"+
		"ADDED     x     x.shop  80/HTTP  STATIC      10.0.0.1   2    0s\n"+
		"ADDED     longer-name  longer-name.shop  80/HTTP  STATIC      10.0.0.1   3    0s\n"+
		"MODIFIED  x            x.shop            80/HTTP  STATIC      10.0.0.1   4    0s\n"+
		"DELETED   x            x.shop            80/HTTP  STATIC      10.0.0.1   6    0s\n")
}

// TestGetWatchOfSeveralKinds: each kind has a table; its header is printed again whenever the
// kind changes.
func TestGetWatchOfSeveralKinds(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	route := func(name string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: " + name + "}\nspec: {hosts: [x.shop], http: [{directResponse: {status: 404}}]}\n"
	}
	a.Must(t, clitest.Entry("x", "")+"---\n"+route("x"), "apply", "-f", "-")
	f := follow(t, a.URL, "se,vs,gw")
	f.awaitOutput("virtualservice/x")
	f.err.await(t, f.ctx, "No gateways found in namespace default; -A looks in all.\n")
	named := follow(t, a.URL, "vs/w", "se/w", "vs/x")
	named.err.await(t, named.ctx, "serviceentry/default/w: not found")
	if code := named.stop(); code != exit.Failure || !strings.Contains(named.err.String(), "virtualservice/default/w: not found") {
		t.Errorf("exit code %d: %s", code, named.err)
	}
	names := follow(t, a.URL, "vs/x", "se/x", "-o", "name")
	names.awaitOutput("virtualservice/default/x\nserviceentry/default/x\n")
	a.Must(t, clitest.Entry("w", ""), "apply", "-f", "-")
	f.awaitOutput("serviceentry/w")
	a.Must(t, clitest.Entry("z", ""), "apply", "-f", "-")
	f.awaitOutput("serviceentry/z")
	a.Must(t, "", "delete", "vs", "x")
	names.awaitOutput("serviceentry/default/x\nvirtualservice/default/x\n")
	f.awaitOutput("virtualservice/x  x.shop  mesh      5 ")
	if code := f.stop(); code != exit.OK {
		t.Errorf("exit code %d: %s", code, f.err)
	}
	clitest.Same(t, "tables", rowEnds.ReplaceAllString(f.out.String(), "0s"), ""+
		"NAME            HOSTS   PORTS    RESOLUTION  ENDPOINTS  REV  AGE\n"+
		"serviceentry/x  x.shop  80/HTTP  STATIC      10.0.0.1   2    0s\n\n"+
		"NAME              HOSTS   GATEWAYS  REV  AGE\n"+
		"virtualservice/x  x.shop  mesh      2    0s\n\n"+
		"NAME            HOSTS   PORTS    RESOLUTION  ENDPOINTS  REV  AGE\n"+
		"serviceentry/w  w.shop  80/HTTP  STATIC      10.0.0.1   3    0s\n"+
		"serviceentry/z  z.shop  80/HTTP  STATIC      10.0.0.1   4    0s\n\n"+
		"NAME              HOSTS   GATEWAYS  REV  AGE\n"+
		"virtualservice/x  x.shop  mesh      5    0s\n")
}

func TestGetWatchForms(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", "")+"---\n"+clitest.Entry("w", ""), "apply", "-f", "-")
	forms := map[string]*runningWatch{
		"name": follow(t, a.URL, "se", "-o", "name"), "json": follow(t, a.URL, "se/x", "-o", "json"), "yaml": follow(t, a.URL, "se/x", "-o", "yaml", "--output-watch-events"),
		"path": follow(t, a.URL, "se", "x", "-o", `jsonpath={.metadata.name} {.metadata.labels.a};`), "none": follow(t, a.URL, "vs", "-o", "name"),
	}
	for form, first := range map[string]string{"name": "serviceentry/default/w\n", "json": "}\n", "yaml": "type: ADDED\n", "path": "x ;"} {
		forms[form].awaitOutput(first)
	}
	forms["none"].err.await(t, forms["none"].ctx, "No virtualservices found in namespace default; -A looks in all.\n")
	a.Must(t, clitest.Entry("x", ", labels: {a: b}")+"---\n"+strings.ReplaceAll(clitest.Entry("w", ""), "10.0.0.1", "10.0.0.2"), "apply", "-f", "-")
	for form, then := range map[string]string{"json": `"a": "b"`, "yaml": "---\n", "path": "x b;"} {
		forms[form].awaitOutput(then)
	}
	forms["name"].awaitOutput("serviceentry/default/w\nserviceentry/default/x\nserviceentry/default/w\n")
	forms["yaml"].awaitOutput("type: MODIFIED\n")
	forms["json"].stop()
	for objects := json.NewDecoder(strings.NewReader(forms["json"].out.String())); objects.More(); {
		var object struct{ Kind string }
		if err := objects.Decode(&object); err != nil || object.Kind != "ServiceEntry" {
			t.Errorf("%+v, %v", object, err)
		}
	}
	if o := a.Do(t, "", "get", "se", "nowhere", "-w"); o.Code != exit.Failure || !strings.Contains(o.Err, "not found") {
		t.Errorf("%+v", o)
	}
}

// unsteady is a proxy of a server that a test can cut off.
type unsteady struct {
	*httptest.Server
	down   atomic.Bool
	forget atomic.Bool // refuse the next watch, as its revision is not known
}

func startUnsteady(t *testing.T, to string) *unsteady {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1, Transport: transport}
	u := &unsteady{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case u.down.Load():
			panic(http.ErrAbortHandler)
		case r.URL.Query().Get("watch") == "true" && u.forget.CompareAndSwap(true, false):
			refuse(w, apierrors.NewResourceExpired("too old"))
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		u.Close()
		transport.CloseIdleConnections()
	})
	return u
}

// refuse answers with an error as the API does.
func refuse(w http.ResponseWriter, why *apierrors.StatusError) {
	status := why.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func (u *unsteady) cut() {
	u.down.Store(true)
	u.CloseClientConnections()
}

// TestGetWatchSurvivesAnOutage: after an outage a watch continues at its revision, and prints
// nothing twice.
func TestGetWatchSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	u := startUnsteady(t, a.URL)
	f := follow(t, u.URL, "se", "-o", "name")
	f.awaitOutput("serviceentry/default/x\n")
	a.Must(t, clitest.Entry("w", ""), "apply", "-f", "-")
	f.awaitOutput("serviceentry/default/w\n")
	u.cut()
	f.err.await(t, f.ctx, "The watch goes on from revision 3 as soon as it can: ")
	a.Must(t, clitest.Entry("z", ""), "apply", "-f", "-")
	u.down.Store(false)
	f.awaitOutput("serviceentry/default/z\n")
	f.stop()
	clitest.Same(t, "names", f.out.String(), "serviceentry/default/x\nserviceentry/default/w\nserviceentry/default/z\n")
	if n := strings.Count(f.err.String(), "\n"); n != 1 {
		t.Errorf("%d lines are said of one outage: %s", n, f.err)
	}
}

// TestGetWatchListsAnew: if the server has forgotten the changes since, the command says so,
// and prints what differs.
func TestGetWatchListsAnew(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("stays", "")+"---\n"+clitest.Entry("goes", "")+"---\n"+clitest.Entry("changes", ""), "apply", "-f", "-")
	u := startUnsteady(t, a.URL)
	f := follow(t, u.URL, "se", "--output-watch-events", "--no-headers")
	f.awaitOutput("stays")
	u.cut()
	f.err.await(t, f.ctx, "goes on from revision 2")
	a.Must(t, clitest.Entry("changes", ", labels: {a: b}"), "apply", "-f", "-")
	a.Must(t, "", "delete", "se/goes")
	u.forget.Store(true)
	u.down.Store(false)
	f.err.await(t, f.ctx, "The server does not know what changed after revision 2 any more; listing the objects again.\n")
	f.awaitOutput("DELETED   goes")
	f.awaitOutput("MODIFIED  changes")
	a.Must(t, clitest.Entry("later", ""), "apply", "-f", "-")
	f.awaitOutput("ADDED     later")
	if n := strings.Count(f.out.String(), "stays "); n != 1 {
		t.Errorf("an object that is as it was is printed %d times:\n%s", n, f.out)
	}
}

// TestGetWatchEndsWhereItIsRefused: an error that does not pass ends the watch.
func TestGetWatchEndsWhereItIsRefused(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "true" {
			refuse(w, apierrors.NewUnauthorized("no watches for you"))
			return
		}
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"2"},"items":[]}`))
	}))
	defer server.Close()
	if o := do(t, "", "get", "se", "-A", "-w", "--server", server.URL); o.Code != exit.Forbidden || !strings.Contains(o.Err, "no watches for you") {
		t.Errorf("%+v", o)
	}
	if o := a.Do(t, "", "get", "se", "-w", "--min-revision", "99999"); o.Code != exit.Unreachable || !strings.Contains(o.Err, "try again") {
		t.Errorf("%+v", o)
	}
}

func TestGetBySelectorAndTemplate(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("a", ", labels: {team: a, old: old}")+"---\n"+clitest.Entry("b", ", labels: {team: b}")+"---\n"+clitest.Entry("c", ""), "apply", "-f", "-")
	for selector, want := range map[string]string{
		"team=a": "a", "team!=a": "b c", "team in (a, b)": "a b", "team notin (b),team": "a", "!team": "c", "team,!old": "b",
	} {
		got := a.Must(t, "", "get", "se", "-l", selector, "-o", `jsonpath={.items[*].metadata.name}`)
		clitest.Same(t, selector, got, want)
	}
	o := a.Do(t, "", "get", "se", "-l", "team=z", "--revision", "2")
	clitest.Same(t, "none", o.Err, "No serviceentries with labels team=z found in namespace default at revision 2; -A looks in all.\n")
	clitest.Same(t, "one", a.Must(t, "", "get", "se/a", "-o", `jsonpath={.metadata.name}:{.spec.ports[0].number}:{.spec.none}{"\n"}`), "a:80:\n")
	clitest.Same(t, "several kinds", a.Must(t, "", "get", "se,vs", "-o", `jsonpath={range .items[?(@.metadata.labels.team)]}{.kind}/{.metadata.name} {end}`), "ServiceEntry/a ServiceEntry/b ")
}

// TestNamespaceOfTheEnvironment: PORTOLAN_NAMESPACE replaces a missing -n, and does not refuse
// objects that name another namespace.
func TestNamespaceOfTheEnvironment(t *testing.T) {
	t.Setenv("PORTOLAN_NAMESPACE", "shop")
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", "")+"---\n"+clitest.Entry("far", ", namespace: edge"), "apply", "-f", "-")
	for line, want := range map[string]string{
		"get se -o name": "serviceentry/shop/x\n", "get se/x -o name": "serviceentry/shop/x\n", "get se -n edge -o name": "serviceentry/edge/far\n",
		"get se/edge/far -o name": "serviceentry/edge/far\n", "get se -A -o name": "serviceentry/edge/far\nserviceentry/shop/x\n",
	} {
		clitest.Same(t, line, a.Must(t, "", strings.Fields(line)...), want)
	}
	for line, says := range map[string]string{
		"history se/x": "created", "export": "namespace: edge", "audit": "2 objects created", "diff se --from 2": "",
		"rollback se/x --to-revision 2": "", "get --help": `(default $PORTOLAN_NAMESPACE, else "default")`,
	} {
		if out := a.Must(t, "", strings.Fields(line)...); !strings.Contains(out, says) {
			t.Errorf("%s: %s", line, out)
		}
	}
	clitest.Same(t, "completion", do(t, "", "--server", a.URL, "__complete", "delete", "se", "").Out, "x\n:4\n")
	a.Must(t, "", "delete", "se/x")
}

// TestGetWatchNamesSources: where the mesh has other sources than the store, the tables of -w have the source
// of each object from the beginning, whatever comes first. So they have for a user who may not see the sources.
func TestGetWatchNamesSources(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code  int
		items []serve.SourceStatus
		named bool
	}{
		"a cluster":         {200, []serve.SourceStatus{{Name: "store", Writable: true}, {Name: "files", Kind: "cluster"}}, true},
		"the store alone":   {200, []serve.SourceStatus{{Name: "store", Writable: true}, {Name: "services/mesh", Endpoints: &serve.EndpointsStatus{}}}, false},
		"no right to see":   {403, nil, true},
		"an earlier server": {404, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, files := resttest.StartBeside(t, false)
			s.REST.Endpoint(serve.SourcesPath, func(w http.ResponseWriter, _ *http.Request) error {
				switch test.code {
				case 403:
					return refusal.Forbidden("no")
				case 404:
					return refusal.NotFound("no")
				}
				rest.WriteJSON(w, 200, serve.SourceList{Items: test.items})
				return nil
			})
			a := line.On(s)
			a.Must(t, clitest.Entry("mine", mine), "apply", "-f", "-")
			f := follow(t, a.URL, "se", "-n", "shop")
			f.awaitOutput("\nmine ")
			files.Publish(t, "v1", clitest.Entry("web", mine))
			f.awaitOutput("\nweb ")
			f.stop()
			rows := strings.Split(strings.TrimSpace(f.out.String()), "\n")
			for i, source := range []string{"SOURCE", "store", "files"} {
				if words := strings.Fields(rows[i]); len(rows) != 3 || (words[len(words)-1] == source) != test.named {
					t.Errorf("row %d of\n%s", i, f.out)
				}
			}
		})
	}
}

// TestGetWatchTellsOfRefusals: what a list would warn of is told once, when the watch begins and when it comes
// up later, and again if it comes back.
func TestGetWatchTellsOfRefusals(t *testing.T) {
	t.Parallel()
	var now atomic.Pointer[[]string]
	say := func(warnings ...string) { now.Store(&warnings) }
	say("source files is old")
	a := line.On(resttest.Start(t, 0, func(o *rest.Options) {
		o.Behind = func(read config.Key) []string {
			if read.Kind != schema.ServiceEntry && read.Kind != schema.VirtualService {
				t.Errorf("warnings are asked for %s", read)
			}
			return *now.Load()
		}
	}))
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	f, both := follow(t, a.URL, "se"), follow(t, a.URL, "se,vs")
	f.awaitOutput("\nx ")
	both.err.await(t, both.ctx, "No virtualservices found")
	tell := func(told string, warnings ...string) {
		t.Helper()
		say(warnings...)
		f.err.await(t, f.ctx, told)
	}
	const old, one, two = "Warning: source files is old\n", "Warning: web is refused\n", "Warning: api is refused\n"
	tell(old+one, "source files is old", "web is refused")
	both.err.await(t, both.ctx, one)
	if both.stop(); strings.Count(both.err.String(), "Warning") != 2 {
		t.Errorf("a watch of two kinds: %s", both.err)
	}
	tell(one+two, "api is refused")
	tell(two+one, "api is refused", "web is refused")
	if code := f.stop(); code != exit.OK || strings.Count(f.err.String(), "Warning") != 4 {
		t.Errorf("exit code %d: %s", code, f.err)
	}
}
