package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// oddAdvisor is an advisor that always finds ServiceEntry "old" odd. If objects are written, it
// finds each of them odd, and another field of "old".
type oddAdvisor struct{ danglingAdvisor }

func (oddAdvisor) Findings(ops []storage.Op) (finding.List, bool) {
	of := func(name, field string) finding.Finding {
		return finding.Finding{
			Code: "PTL0107", Severity: "error", Field: field, Message: "is odd",
			Object: finding.Object{APIVersion: "networking.istio.io/v1", Kind: "ServiceEntry", Namespace: "default", Name: name},
		}
	}
	list := finding.List{Revision: 1, Items: []finding.Finding{of("old", "spec.ports")}}
	for _, op := range ops {
		list.Items = append(list.Items, of(op.Target().Name, "spec.ports"), of("old", "spec.hosts[0]"))
	}
	return list, true
}

// TestAnalyzeOfFiles: findings about stored objects that exist without the files are left out.
func TestAnalyzeOfFiles(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, func(o *rest.Options) { o.Advisor = oddAdvisor{} }))
	const of, leftOut = "error [PTL0107] serviceentry/default/", " Left out: 1 of stored objects that the files do not concern; see portolan analyze."
	for _, test := range []struct{ stdin, args, out, err string }{
		{"", "analyze", of + "old: spec.ports is odd\n", "Findings: 1 error.\n"},
		{clitest.Entry("a", ""), "analyze -f -", of + "a: spec.ports is odd\n" + of + "old: spec.hosts[0] is odd\n", "Findings: 2 errors." + leftOut + "\n"},
		{clitest.Entry("old", ""), "analyze -f -", of + "old: spec.ports is odd\n" + of + "old: spec.ports is odd\n" + of + "old: spec.hosts[0] is odd\n", "Findings: 3 errors.\n"},
		{clitest.Entry("a", ""), "analyze -f - --suppress PTL0107=*/default/*", "", "Nothing is odd. (2 suppressed)" + leftOut + "\n"},
	} {
		o := a.Do(t, test.stdin, strings.Fields(test.args)...)
		clitest.Same(t, test.args, o.Out+o.Err, test.out+test.err)
		if code := map[bool]int{true: exit.Findings, false: exit.OK}[test.out != ""]; o.Code != code {
			t.Errorf("%s: exit code %d, want %d", test.args, o.Code, code)
		}
	}
}

// unreadAdvisor finds that a source cannot be read.
type unreadAdvisor struct{ danglingAdvisor }

func (unreadAdvisor) Findings([]storage.Op) (finding.List, bool) {
	return finding.List{Items: []finding.Finding{{
		Code: "PTL0182", Severity: "warning", Object: finding.Object{Kind: finding.SourceKind, Name: "kube://east"}, Message: "cannot be read", Remedy: "see it",
	}}}, true
}

// TestAnalyzeTellsOfASourceThatIsNotRead: in each namespace and beside files, unless it is left out
// by its name.
func TestAnalyzeTellsOfASourceThatIsNotRead(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, func(o *rest.Options) { o.Advisor = unreadAdvisor{} }))
	const told = "warning [PTL0182] source/kube://east: cannot be read: see it\nFindings: 1 warning.\n"
	for _, test := range []struct{ stdin, args, want string }{
		{"", "analyze", told},
		{"", "analyze -n shop", told},
		{clitest.Entry("a", ""), "analyze -f -", told},
		{"", "analyze --suppress PTL0182=source/kube://east", "Nothing is odd. (1 suppressed)\n"},
		{"", "analyze --suppress PTL0182=source/kube://west", told},
	} {
		o := a.Do(t, test.stdin, strings.Fields(test.args)...)
		clitest.Same(t, test.args, o.Out+o.Err, test.want)
	}
}

// TestGetTellsOfASourceThatIsNotRead: once, also where an object is not found.
func TestGetTellsOfASourceThatIsNotRead(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, func(o *rest.Options) {
		o.Behind = func(config.Key) []string { return []string{"source kube://east cannot be read as it is now"} }
	}))
	const told = "Warning: source kube://east cannot be read as it is now\n"
	const absent = "portolan: serviceentry/default/web: not found: see those there are with portolan get serviceentries -A\n"
	for args, want := range map[string]string{
		"get se,vs -A":                   told + "No serviceentries found.\nNo virtualservices found.\n",
		"get se/web":                     told + absent,
		"describe se/web":                told + absent,
		"get se/web --ignore-not-found":  told,
		"get se -A --revision 1 -o name": "No serviceentries found at revision 1.\n",
		"export":                         "",
		"history se/web":                 told + "portolan: serviceentry/default/web: there is no history of it: it never was, or its records are past their retention; -n names another namespace\n",
		"rollback se/web":                told + "portolan: nothing was rolled back: the history knows no change of serviceentry/default/web\n",
	} {
		clitest.Same(t, args, a.Do(t, "", strings.Fields(args)...).Err, want)
	}
	w := follow(t, a.URL, "se,vs", "-A")
	w.err.await(t, w.ctx, told+"No serviceentries found.\nNo virtualservices found.\n")
	a.Must(t, clitest.Entry("new", ""), "apply", "-f", "-")
	w.out.await(t, w.ctx, "new")
	w.stop()
	clitest.Same(t, "get -w", w.err.String(), told+"No serviceentries found.\nNo virtualservices found.\n")
}
