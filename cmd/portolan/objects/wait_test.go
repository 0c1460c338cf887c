package objects

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// waited runs wait against a server that gives these answers in order, and repeats the last.
func waited(t *testing.T, answers []progress.Distribution, args ...string) (clitest.Outcome, url.Values) {
	t.Helper()
	return waitedAt(t, false, answers, args...)
}

// waitedAt is like waited, with or without a terminal.
func waitedAt(t *testing.T, terminal bool, answers []progress.Distribution, args ...string) (clitest.Outcome, url.Values) {
	t.Helper()
	var asked atomic.Int64
	var query atomic.Pointer[url.Values]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != admin.PropagationPath {
			http.NotFound(w, r)
			return
		}
		q := r.URL.Query()
		query.Store(&q)
		n := min(int(asked.Add(1)), len(answers))
		_ = json.NewEncoder(w).Encode(admin.Propagation{Distribution: answers[n-1]})
	}))
	defer server.Close()
	o := line.DoAs(t, "", func(e *cli.Environment) { e.Live.Shown = terminal }, append([]string{"wait", "--server", server.URL}, args...)...)
	var q url.Values
	if p := query.Load(); p != nil {
		q = *p
	}
	return o, q
}

func TestWait(t *testing.T) {
	t.Parallel()
	taken := func(c status.Count) progress.Distribution { return progress.Distribution{Revision: 815, Count: c} }
	behind := taken(status.Count{Accepted: 1})
	behind.Behind = []string{"cp-2:7/0a"}
	rejected := taken(status.Count{Accepted: 40, NotConcerned: 3, Rejected: 1})
	rejected.Problems = []status.Problem{
		{Node: "sidecar~10.0.0.17~vm-17.shop~d", Type: "RDS", Revision: 812, Rejected: true, RejectedRevision: 815, Message: `no "v3"`},
		{Node: "sidecar~10.0.0.18~vm-18.shop~d", Type: "EDS", Revision: 812},
	}
	offline := taken(status.Count{Accepted: 1})
	offline.Offline, offline.Gone = 1, []progress.Place{{Node: "vm-9", Seen: time.Now().Add(-3 * time.Minute)}}
	waiting := taken(status.Count{Accepted: 1, Waiting: 1})
	waiting.Problems = []status.Problem{{Node: "vm-18", Type: "EDS", Revision: 812, Since: time.Now().Add(-41 * time.Minute)}}

	for name, c := range map[string]struct {
		answers []progress.Distribution
		args    []string
		code    int
		stdout  []string
		stderr  string
	}{
		"at once":               {[]progress.Distribution{taken(status.Count{Accepted: 2})}, nil, 0, []string{"distributed  2/2 proxies  accepted 2  not concerned 0  "}, ""},
		"nobody":                {[]progress.Distribution{taken(status.Count{})}, nil, 3, []string{"distributed  0/0 proxies", "no proxy is concerned: none is connected"}, ""},
		"nobody, which is well": {[]progress.Distribution{taken(status.Count{NotConcerned: 3})}, []string{"--min-proxies", "0"}, 0, []string{"no proxy is concerned"}, ""},
		"none of them":          {[]progress.Distribution{taken(status.Count{NotConcerned: 3})}, nil, 0, []string{"distributed  3/3 proxies", "no proxy is concerned: it changes nothing for those that are connected"}, ""},
		"two, as asked":         {[]progress.Distribution{taken(status.Count{}), taken(status.Count{Accepted: 1}), taken(status.Count{Accepted: 2})}, []string{"--min-proxies", "2"}, 0, []string{"distributed  2/2 proxies"}, ""},
		"too few":               {[]progress.Distribution{taken(status.Count{Accepted: 1, NotConcerned: 4})}, []string{"--min-proxies", "2", "--timeout", "50ms"}, 2, []string{"distributed  5/5"}, "revision 815 was taken by 1 proxy within 50ms, and --min-proxies asks for 2"},
		"one refuses":           {[]progress.Distribution{rejected}, []string{"--min-proxies", "1"}, 2, nil, "was refused"},
		"bad minimum":           {nil, []string{"--min-proxies", "-1"}, 64, nil, "give a number of proxies"},
		"after a while":         {[]progress.Distribution{behind, waiting, taken(status.Count{Accepted: 2})}, nil, 0, []string{"distributed  2/2 proxies"}, ""},
		"refused":               {[]progress.Distribution{rejected}, nil, 2, []string{"distributed  43/44 proxies", "rejected 1", `rejected  vm-17.shop  RDS  rev 815  "no \"v3\""`}, "revision 815 was refused by 1 of 44 proxies"},
		"enough":                {[]progress.Distribution{rejected}, []string{"--threshold", "97%"}, 0, []string{"rejected 1"}, ""},
		"not enough":            {[]progress.Distribution{rejected}, []string{"--threshold", "98"}, 2, nil, "was refused"},
		"gone":                  {[]progress.Distribution{offline}, nil, 0, []string{"distributed  1/1 proxies", "offline 1", "offline  vm-9  last seen 3m ago"}, ""},
		"too late":              {[]progress.Distribution{waiting}, []string{"--timeout", "50ms"}, 2, []string{"waiting 1", "waiting  vm-18  EDS  rev 812  for 41m"}, "revision 815 was not taken by 1 of 2 proxies within 50ms"},
		"not published":         {[]progress.Distribution{behind}, []string{"--timeout", "50ms"}, 2, []string{"servers behind 1 (cp-2:7)", "behind  server cp-2:7"}, "not published by all servers within 50ms: cp-2:7 is behind, and the server at http://"},
		"bad threshold":         {nil, []string{"--threshold", "101"}, 64, nil, "give a percentage"},
		"bad timeout":           {nil, []string{"--timeout", "0s"}, 64, nil, "give a time"},
		"bad revision":          {nil, []string{"--revision", "0"}, 64, nil, "a revision is a number from 1 on"},
		"two things":            {nil, []string{"vs/reviews"}, 64, nil, "--revision N, or KIND/NAME"},
	} {
		args := c.args
		if name != "bad revision" {
			args = append([]string{"--revision", "815"}, args...)
		}
		got, _ := waited(t, c.answers, args...)
		expectWords(t, name, got.Out, c.stdout)
		if got.Code != c.code || !strings.Contains(got.Err, c.stderr) || name == "refused" && strings.Contains(got.Out, "vm-18") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// expectWords checks that an output of the case of a name has all the words.
func expectWords(t *testing.T, name, output string, words []string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(output, word) {
			t.Errorf("%s: there is no %q in\n%s", name, word, output)
		}
	}
}

// TestWaitAtTerminal: progress is one line, which is erased at the end.
func TestWaitAtTerminal(t *testing.T) {
	t.Parallel()
	waiting := progress.Distribution{Revision: 815, Count: status.Count{Accepted: 1, Waiting: 1}}
	got, _ := waitedAt(t, true, []progress.Distribution{waiting, waiting, {Revision: 815, Count: status.Count{Accepted: 2}}}, "--revision", "815")
	lines := strings.Split(got.Err, "\r\x1b[K")
	if got.Code != exit.OK || len(lines) != 4 || !strings.HasPrefix(lines[2], "distributed  1/2 proxies") || lines[3] != "" || strings.Contains(got.Err, "\n") {
		t.Errorf("%+v: %q", got, lines)
	}
}

// TestWaitAsks: a revision means everything up to it, an object its last change.
func TestWaitAsks(t *testing.T) {
	t.Parallel()
	done := []progress.Distribution{{Revision: 7}}
	for want, args := range map[string][]string{
		"revision=7": {"--revision", "7"},
		"group=networking.istio.io&kind=VirtualService&name=reviews&namespace=shop": {"vs/reviews", "-n", "shop"},
	} {
		if got, query := waited(t, done, args...); got.Code != exit.Unconcerned || // no proxy is known
			query.Encode() != want {
			t.Errorf("%v: %+v asks for %s, want %s", args, got, query.Encode(), want)
		}
	}
	for _, args := range [][]string{{}, {"vs"}, {"vs", "a", "b"}, {"no/a"}} {
		if got, _ := waited(t, done, args...); got.Code != exit.Usage {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// TestWaitForPrograms: the output is one document, and the exit code is the same.
func TestWaitForPrograms(t *testing.T) {
	t.Parallel()
	for form, words := range map[string]string{"json": `"accepted": 2`, "yaml": "accepted: 2"} {
		enough, _ := waited(t, []progress.Distribution{{Revision: 815, Count: status.Count{Accepted: 2}}}, "--revision", "815", "-o", form)
		if enough.Code != 0 || !strings.Contains(enough.Out, words) || strings.Contains(enough.Out, "distributed") || enough.Err != "" {
			t.Errorf("%s: %+v", form, enough)
		}
		less, _ := waited(t, []progress.Distribution{{Revision: 815, Count: status.Count{Accepted: 2, Rejected: 1}}}, "--revision", "815", "-o", form)
		if less.Code != 2 || !strings.Contains(less.Out, words) || !strings.Contains(less.Err, "was refused") {
			t.Errorf("%s, refused: %+v", form, less)
		}
	}
	if o, _ := waited(t, nil, "--revision", "815", "-o", "wide"); o.Code != exit.Usage {
		t.Errorf("%+v", o)
	}
}

// TestWaitForBatchOfAnEditor: a user who may not ask about the whole store waits for an object
// of the batch.
func TestWaitForBatchOfAnEditor(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		if r.URL.Query().Has("change") {
			forbidden := refusal.Forbidden("all namespaces").ErrStatus
			forbidden.Kind = "Status"
			rest.WriteJSON(w, http.StatusForbidden, forbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(admin.Propagation{Distribution: progress.Distribution{Revision: 9, Count: status.Count{Accepted: 1}}})
	}))
	defer server.Close()
	var out bytes.Buffer
	env := &environment{&cli.Environment{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Now: time.Now, Schemas: schema.Pilot(), Server: server.URL}}
	err := env.waitForBatch(t.Context(), &batch.Result{Revision: "9", Results: []batch.Outcome{
		{Kind: "gateway", Namespace: "shop", Name: "edge", Outcome: "unchanged"},
		{Kind: "virtualservice", Namespace: "shop", Name: "web", Outcome: "configured"},
		{Kind: "sidecar", Namespace: "shop", Name: "web", Outcome: "unchanged"},
	}}, waitFlags{timeout: time.Minute, threshold: "100"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"change=9", "group=networking.istio.io&kind=VirtualService&name=web&namespace=shop"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
}
