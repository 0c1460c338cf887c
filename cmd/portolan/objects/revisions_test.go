package objects

import (
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func TestGetRevision(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	if text := a.Must(t, "", "get", "se/a", "-n", "shop", "--revision", "4", "-o", "yaml"); !strings.Contains(text, "10.0.0.2") || !strings.Contains(text, `resourceVersion: "3"`) {
		t.Errorf("%s", text)
	}
	for args, want := range map[string]string{
		"se -A --revision 4 -o name":          "serviceentry/edge/x\nserviceentry/shop/a\nserviceentry/shop/b\n",
		"se -n shop --revision 6 -o name":     "serviceentry/shop/a\n",
		"se a b -n shop --revision 2 -o name": "serviceentry/shop/a\nserviceentry/shop/b\n",
		"se,vs -A --revision 1 -o name":       "",
	} {
		clitest.Same(t, args, a.Must(t, "", append([]string{"get"}, strings.Fields(args)...)...), want)
	}
	if table := a.Must(t, "", "get", "se", "-n", "shop", "--revision", "3"); !strings.Contains(table, "10.0.0.2") || strings.Count(table, "\n") != 3 {
		t.Errorf("%s", table)
	}
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"se/a --revision 7", exit.Data, "revision 7 is in the future: the store is at 6"},
		{"se/b -n shop --revision 5", exit.Failure, "serviceentry/shop/b: there was none at revision 5: see when there was with portolan history serviceentry/shop/b"},
		{"se/a --revision -1", exit.Usage, "--revision -1"},
		{"se/a --revision 1 --consistent", exit.Usage, "leave --min-revision and --consistent out"},
		{"se/a --min-revision -1", exit.Usage, "--min-revision -1"},
	} {
		o := a.Do(t, "", append([]string{"get"}, strings.Fields(test.args)...)...)
		if o.Code != test.code || !strings.Contains(o.Err, test.says) || o.Out != "" {
			t.Errorf("%s: %+v", test.args, o)
		}
	}
}

func TestDiffOfRevisions(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	o := a.Do(t, "", "diff", "-A", "--from", "2")
	golden.Assert(t, o.Out, "diff-revisions.txt")
	if o.Code != exit.Differences || o.Err != "" {
		t.Errorf("%+v", o)
	}
	// The wanted values are the headers of the objects that differ.
	for args, want := range map[string]string{
		"-A --from 6":                    "",
		"-A --from 3 --to 3":             "",
		"-n shop --from 3 --to 5":        "-serviceentry/shop/b rev 2 +/dev/null",
		"-n edge --from 1 --to 4":        "-/dev/null +serviceentry/edge/x rev 4",
		"-n edge --from 4 --to 1":        "-serviceentry/edge/x rev 4 +/dev/null",
		"--from 1":                       "",
		"vs -A --from 1":                 "",
		"se a -n shop --from 3":          "-serviceentry/shop/a rev 3 +serviceentry/shop/a rev 6",
		"se/shop/a se/edge/x --from 5":   "-serviceentry/shop/a rev 3 +serviceentry/shop/a rev 6",
		"se,vs -n shop --from 2 --to 3 ": "-serviceentry/shop/a rev 2 +serviceentry/shop/a rev 3",
	} {
		o := a.Do(t, "", append([]string{"diff"}, strings.Fields(args)...)...)
		var headers []string
		for _, line := range strings.Split(o.Out, "\n") {
			if strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ") {
				headers = append(headers, strings.ReplaceAll(line[2:3]+line[4:], "\t", " "))
			}
		}
		clitest.Same(t, args, strings.Join(headers, " "), want)
		if wanted := map[bool]int{true: exit.OK, false: exit.Differences}[want == ""]; o.Code != wanted || o.Err != "" {
			t.Errorf("%s: %+v", args, o)
		}
	}
}

func TestDiffOfRevisionsErrors(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	for args, says := range map[string]string{
		"-A":                       "--to and -A need --from",
		"--to 3":                   "--to and -A need --from",
		"se/a":                     "name files with -f, or give --from REVISION",
		"--from 0":                 "--from 0",
		"--from 1 --to -3":         "--to -3",
		"--from 1 -f -":            "leave one of them out",
		"--from 1 --prune":         "leave one of them out",
		"--from 1 -A -n shop":      "leave one of them out",
		"--from 1 -A se/a":         "name it with -n instead of -A",
		"--from 1 teapot":          "unknown kind",
		"--from 1 --prune-kinds x": "leave one of them out",
	} {
		if o := a.Do(t, "", append([]string{"diff"}, strings.Fields(args)...)...); o.Code != exit.Usage || !strings.Contains(o.Err, says) || o.Out != "" {
			t.Errorf("%s: %+v", args, o)
		}
	}
	if o := a.Do(t, "", "diff", "se/typo", "--from", "2"); o.Code != exit.Failure || !strings.Contains(o.Err, "serviceentry/default/typo: there was none at revision 2, and none at 6") {
		t.Errorf("%+v", o)
	}
	if o := a.Do(t, "", "diff", "--from", "99"); o.Code != exit.Data || !strings.Contains(o.Err, "revision 99 is in the future: the store is at 6") {
		t.Errorf("%+v", o)
	}
}
