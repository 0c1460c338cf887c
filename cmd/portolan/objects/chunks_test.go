package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

// five returns five documents, some replaced by others.
func five(replace map[int]string) string {
	documents := []string{clitest.Entry("a", ""), clitest.Entry("b", ""), clitest.Entry("c", ""), clitest.Entry("d", ""), clitest.Entry("e", "")}
	for i, document := range replace {
		documents[i] = document
	}
	return strings.Join(documents, "---\n")
}

func TestApplyInParts(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	want := `part 1 of 3: objects 1-2: rev 2
serviceentry/default/a  created  rev 2
serviceentry/default/b  created  rev 2
part 2 of 3: objects 3-4: rev 3
serviceentry/default/c  created  rev 3
serviceentry/default/d  created  rev 3
part 3 of 3: objects 5-5: rev 4
serviceentry/default/e  created  rev 4
`
	out := a.Must(t, five(nil), "apply", "-f", "-", "--chunks", "2", "--dry-run=server")
	if !strings.HasPrefix(out, "part 1 of 3: objects 1-2: dry run\nserviceentry/default/a  created (dry run)\n") {
		t.Error(out)
	}
	clitest.Same(t, "stdout", a.Must(t, five(nil), "apply", "-f", "-", "--chunks", "2"), want)
	clitest.Same(t, "what fits in one part", a.Must(t, clitest.Entry("a", ""), "apply", "-f", "-", "--chunks", "9"),
		"part 1 of 1: objects 1-1: rev 4\nserviceentry/default/a  unchanged  rev 2\n")
}

func TestAPartThatFailsIsTheLast(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("d", ""), "apply", "-f", "-")
	o := a.Do(t, five(map[int]string{3: clitest.Entry("d", `, resourceVersion: "1", labels: {a: b}`)}), "apply", "-f", "-", "--chunks", "2")
	if want := (clitest.Outcome{Code: exit.Conflict, Out: "part 1 of 3: objects 1-2: rev 3\nserviceentry/default/a  created  rev 3\nserviceentry/default/b  created  rev 3\n", Err: "portolan: part 2 of 3: objects 3-4: objects 1-2 were applied, objects 3-5 were not applied: nothing was applied of this part: " +
		"stdin: document 4 (line 31): conflict: serviceentry/default/d changed (you had version 1, the store has 2): " +
		"see portolan diff serviceentry/d -n default --from 1\n"}); o != want {
		t.Errorf("%+v", o)
	}
	if v := a.Store.Version(); v != "3" {
		t.Errorf("the store is at %s", v)
	}
	o = do(t, five(nil), "apply", "-f", "-", "--chunks", "2", "--server", "http://127.0.0.1:1", "--request-timeout", "300ms") // long enough to be refused on a busy machine
	if o.Code != exit.Unreachable || !strings.Contains(o.Err, "nothing was applied before it, objects 1-5 were not applied: cannot reach") {
		t.Errorf("%+v", o)
	}
}

func TestChunksAreAtLeastOne(t *testing.T) {
	t.Parallel()
	if o := do(t, five(nil), "apply", "-f", "-", "--chunks", "-1"); o.Code != exit.Usage || !strings.Contains(o.Err, "--chunks -1") {
		t.Errorf("%+v", o)
	}
}

func TestDeletionsAreInTheLastParts(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, nil))
	a.Must(t, clitest.Entry("a", mine)+"---\n"+clitest.Entry("gone", mine), "apply", "-f", "-")
	clitest.Same(t, "stdout", a.Must(t, clitest.Entry("a", mine)+"---\n"+clitest.Entry("z", mine), "apply", "-f", "-", "--chunks", "1", "--prune", "-l", "app=shop"),
		"part 1 of 3: objects 1-1: rev 2\nserviceentry/shop/a  unchanged  rev 2\n"+
			"part 2 of 3: objects 2-2: rev 3\nserviceentry/shop/z  created  rev 3\n"+
			"part 3 of 3: objects 3-3: rev 4\nserviceentry/shop/gone  deleted  rev 4\n")
}
