package objects

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestWaitForObjects: --for waits for fields, conditions, and for objects to come and go.
func TestWaitForObjects(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", "")+"---\n"+clitest.Entry("w", ", labels: {app: web}"), "apply", "-f", "-")
	for _, step := range []struct {
		line string
		code int
		out  string
		err  string
	}{
		{"wait se/x se/w --for=create", exit.OK, "serviceentry/default/x  create\nserviceentry/default/w  create\n", ""},
		{"wait se/x --for=jsonpath={.spec.hosts[0]}=x.shop", exit.OK, "serviceentry/default/x  jsonpath={.spec.hosts[0]}=x.shop\n", ""},
		{"wait se/x --for=jsonpath=.spec.resolution=STATIC", exit.OK, "serviceentry/default/x  jsonpath=.spec.resolution=STATIC\n", ""},
		{"wait se/x --for=jsonpath={.spec.hosts}", exit.OK, "serviceentry/default/x  jsonpath={.spec.hosts}\n", ""},
		{"wait se -l app=web --for=jsonpath={.spec.ports[?(@.name==\"http\")].number}=80", exit.OK, "serviceentry/default/w  jsonpath={.spec.ports[?(@.name==\"http\")].number}=80\n", ""},
		{"wait se/nope --for=delete", exit.OK, "serviceentry/default/nope  delete\n", ""},
		{"wait se -l no=no --for=delete", exit.OK, "", "Nothing was waited for: there are no such objects.\n"},
		{"wait se -l no=no --for=create", exit.Failure, "", "Nothing was waited for: there are no such objects.\n"},
		{"wait se/x --for=delete --timeout 1ms", exit.Differences, "", "portolan: serviceentry/default/x: exists, and --for delete was waited for within 1ms\n"},
		{"wait se/nope --for=create --timeout 1ms", exit.Differences, "", "portolan: serviceentry/default/nope: does not exist, and --for create was waited for within 1ms\n"},
		{"wait se/x --for=jsonpath={.spec.nope}=1 --timeout 1ms", exit.Differences, "", "portolan: serviceentry/default/x: {.spec.nope} is <none>, and --for jsonpath={.spec.nope}=1 was waited for within 1ms\n"},
		{"wait se/x --for=condition=Nope --timeout 1ms", exit.Differences, "", "portolan: serviceentry/default/x: has no condition Nope, and --for condition=Nope was waited for within 1ms\n"},
		{"wait se/nope --for=condition=Programmed", exit.Failure, "", "portolan: serviceentry/default/nope: not found: see those there are with portolan get serviceentries -A\n"},
		{"wait --for=create", exit.Usage, "", "portolan: name what to wait for: KIND/NAME, KIND NAME, or KIND with --all or -l\n"},
		{"wait se/x --for=", exit.Usage, "", "portolan: --all, -l and -A name objects that --for waits for: add it, or name one object\n"},
		{"wait se --all", exit.Usage, "", "portolan: --all, -l and -A name objects that --for waits for: add it, or name one object\n"},
		{"wait se/x --for=ready", exit.Usage, "", `portolan: --for "ready": use condition=TYPE, condition=TYPE=STATUS, jsonpath='{PATH}'=VALUE, create or delete` + "\n"},
		{"wait se/x --for=condition=", exit.Usage, "", `portolan: --for "condition=": use condition=TYPE, condition=TYPE=STATUS, jsonpath='{PATH}'=VALUE, create or delete` + "\n"},
		{"wait se/x --for=condition=A=", exit.Usage, "", `portolan: --for "condition=A=": use condition=TYPE, condition=TYPE=STATUS, jsonpath='{PATH}'=VALUE, create or delete` + "\n"},
		{"wait se/x --for=jsonpath={.a}=", exit.Usage, "", `portolan: --for "jsonpath={.a}=": give the value behind the last =, or leave that out to wait for any` + "\n"},
		{"wait se/x --for=jsonpath={.a", exit.Usage, "", `portolan: --for: "{.a" is not the path of a field: give one such as .metadata.name` + "\n"},
		{"wait se/x --for=delete --min-proxies 1", exit.Usage, "", "portolan: --for waits for objects, and --min-proxies is about proxies: leave one of them out\n"},
		{"wait se/x --for=delete --revision 3", exit.Usage, "", "portolan: --for waits for objects, and --revision is about proxies: leave one of them out\n"},
		{"wait se/x se/w se/v", exit.Usage, "", "portolan: name one object to wait for: KIND/NAME or KIND NAME; --for takes several\n"},
	} {
		if o := a.Do(t, "", strings.Fields(step.line)...); o != (clitest.Outcome{Code: step.code, Out: step.out, Err: step.err}) {
			t.Errorf("%s: %+v", step.line, o)
		}
	}
}

// TestWaitForSeesChanges: a wait ends when an object comes, changes or goes.
func TestWaitForSeesChanges(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	var asked atomic.Int64
	url := inFrontOf(t, a, func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/serviceentries/x") {
			return false
		}
		switch asked.Add(1) {
		case 2:
			a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
		case 4:
			a.Must(t, "", "label", "se/x", "done=yes")
		case 6:
			a.Must(t, "", "delete", "se/x")
		}
		return false
	})
	for i, text := range []string{"create", "jsonpath={.metadata.labels.done}=yes", "delete"} {
		if o := do(t, "", "wait", "se/x", "--for", text, "--server", url); o != (clitest.Outcome{Out: "serviceentry/default/x  " + text + "\n"}) {
			t.Errorf("%s: %+v", text, o)
		}
		if n := asked.Load(); n != int64(2*i+2) {
			t.Errorf("%s: asked %d times", text, n)
		}
	}
}

func TestWaitForConditions(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	answers := []string{
		`{"metadata": {"name": "x", "generation": 2}}`,
		`{"metadata": {"name": "x", "generation": 2}, "status": {"conditions": [{"type": "Programmed", "status": "True", "observedGeneration": 1}]}}`,
		`{"metadata": {"name": "x", "generation": 2}, "status": {"conditions": [{"type": "Programmed", "status": "False", "observedGeneration": 2}]}}`,
		`{"metadata": {"name": "x", "generation": 2}, "status": {"conditions": [{"type": "Programmed", "status": "True", "observedGeneration": 2}]}}`,
	}
	ask := func(text string, args ...string) (clitest.Outcome, error) {
		n.Store(0)
		return serving(t, func(*http.Request) any {
			return `{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", ` + answers[min(int(n.Add(1)), len(answers))-1][1:]
		}, append([]string{"wait", "vs/x", "--for", text}, args...)...)
	}
	for text, asked := range map[string]int64{"condition=Programmed": 4, "condition=programmed=false": 3} {
		if o, err := ask(text); err != nil || o.Out != "virtualservice/default/x  "+text+"\n" || n.Load() != asked {
			t.Errorf("%s: asked %d times: %+v, %v", text, n.Load(), o, err)
		}
	}
}
