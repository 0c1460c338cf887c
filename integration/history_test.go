package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ship is a ServiceEntry with an endpoint.
func ship(namespace, name, address string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: $namespace}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: $address}]
`, "$namespace", namespace, "$name", name, "$address", address)
}

// past is a server with some revisions in its history.
type past struct {
	*server
	// Revisions: a and b are created, a changes, x is created, b is deleted, a
	// changes again.
	created, changed, other, deleted, again int64
}

// startPast makes a past, compacts etcd and restarts the server, so that only the history
// records are left.
func startPast(t *testing.T) past {
	t.Helper()
	p := past{server: startServer(t, serverOptions{})}
	p.created = p.apply(ship("shop", "a", "10.0.0.1"), ship("shop", "b", "10.0.0.1"))
	p.must(ship("shop", "a", "10.0.0.2"), "apply", "-f", "-", "-m", "to the second")
	p.changed = p.revision()
	p.other = p.apply(ship("edge", "x", "10.0.0.1"))
	p.deleted = p.remove(ship("shop", "b", "10.0.0.1"))
	p.again = p.apply(ship("shop", "a", "10.0.0.3"))
	p.must("", "store", "compact")
	p.kill()
	p.start()
	return p
}

// revisions returns the numbers at the beginning of a table's lines.
func revisions(table string) (out []string) {
	for _, line := range strings.Split(table, "\n")[1:] {
		if revision, _, _ := strings.Cut(line, " "); revision != "" {
			out = append(out, revision)
		}
	}
	return out
}

// expectAddresses compares the addresses of a, b and x at a revision; empty means that the
// object is missing.
func (s *server) expectAddresses(what string, at int64, want ...string) {
	s.t.Helper()
	args := []string{"get", "se", "-A", "-o", "json"}
	if at != 0 {
		args = append(args, "--revision", strconv.FormatInt(at, 10))
	}
	found := regexp.MustCompile(`"(?:address|name)": "(10\.\d+\.\d+\.\d+|[abx])"`).FindAllStringSubmatch(s.must("", args...), -1)
	var got []string
	for i := 0; i+1 < len(found); i += 2 { // metadata is before spec in each object
		got = append(got, found[i][1]+" "+found[i+1][1])
	}
	slices.Sort(got)
	expectEqual(s.t, what, got, want)
}

// TestThePast: after a compaction and a restart, the history still tells who changed what, and
// the former content. An object, a namespace or everything can be rolled back, each as one new
// revision.
func TestThePast(t *testing.T) {
	t.Parallel()
	p := startPast(t)
	history := p.must("", "history", "se/a", "-n", "shop")
	expectEqual(t, "history of a", revisions(history), fmt.Sprint([]int64{p.again, p.changed, p.created}))
	for _, words := range []string{"endpoints[0].address 10.0.0.1 -> 10.0.0.2", "to the second", "apply (", "local"} {
		if !strings.Contains(history, words) {
			t.Errorf("the history says nothing of %q:\n%s", words, history)
		}
	}
	expectEqual(t, "history of b, which is gone", revisions(p.must("", "history", "se/b", "-n", "shop")), fmt.Sprint([]int64{p.deleted, p.created}))
	expectEqual(t, "audit", revisions(p.must("", "audit")), fmt.Sprint([]int64{p.again, p.deleted, p.other, p.changed, p.created}))

	p.expectAddresses("at first", p.created, "a 10.0.0.1", "b 10.0.0.1")
	p.expectAddresses("when x was there", p.other, "a 10.0.0.2", "b 10.0.0.1", "x 10.0.0.1")
	p.expectAddresses("when b was gone", p.deleted, "a 10.0.0.2", "x 10.0.0.1")
	p.expectAddresses("before anything", 1)
	out := p.try("", "diff", "se/a", "-n", "shop", "--from", fmt.Sprint(p.created), "--to", fmt.Sprint(p.changed))
	if out.code != 2 || !strings.Contains(out.stdout, "-  - address: 10.0.0.1\n+  - address: 10.0.0.2\n") {
		t.Errorf("diff: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}

	p.expectRollback("se/a", "-n", "shop", "--to-revision", fmt.Sprint(p.changed))
	p.expectAddresses("a as changed", 0, "a 10.0.0.2", "x 10.0.0.1")
	p.expectRollback("-n", "shop", "--to-revision", fmt.Sprint(p.created))
	p.expectAddresses("the namespace as created", 0, "a 10.0.0.1", "b 10.0.0.1", "x 10.0.0.1")
	p.expectRollback("-A", "--to-revision", fmt.Sprint(p.created))
	p.expectAddresses("all as created", 0, "a 10.0.0.1", "b 10.0.0.1")
	expectEqual(t, "difference", p.must("", "diff", "-A", "--from", fmt.Sprint(p.created)), "")
	p.expectRollback("-A", "--to-revision", fmt.Sprint(p.again))
	p.expectAddresses("the rollbacks rolled back", 0, "a 10.0.0.3", "x 10.0.0.1")

	out = p.try("", "rollback", "-A", "--yes", "--to-revision", fmt.Sprint(p.again+99))
	if out.code != 65 || !strings.Contains(out.stderr, "in the future") {
		t.Errorf("rollback to the future: exit code %d\n%s", out.code, out.stderr)
	}
}

// expectRollback rolls back and expects one new record. Its revision need not be the next,
// since the server's own writes use some.
func (s *server) expectRollback(args ...string) {
	s.t.Helper()
	before := revisions(s.must("", "audit"))
	s.must("", append([]string{"rollback", "--yes"}, args...)...)
	after := revisions(s.must("", "audit"))
	expectEqual(s.t, "the records before the rollback", after[1:], before)
}

// TestTwoEditorsOfOneObject: two editors change the version that both have read. The second
// gets a conflict with both versions and the command that shows the other's change. The first
// one's change is stored.
func TestTwoEditorsOfOneObject(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	s.apply(ship("shop", "a", "10.0.0.1"))
	for round := range 5 {
		read := s.must("", "get", "se/a", "-n", "shop", "-o", "yaml")
		address := regexp.MustCompile(`10\.\d+\.\d+\.\d+`)
		outcomes := make(chan outcome, 2)
		for editor := range 2 {
			mine := address.ReplaceAllString(read, fmt.Sprintf("10.%d.0.%d", round+1, editor+1))
			go func() { outcomes <- s.try(mine, "apply", "-f", "-") }()
		}
		won, lost := <-outcomes, <-outcomes
		if won.code != 0 {
			won, lost = lost, won
		}
		if won.code != 0 || lost.code != 75 || lost.stdout != "" {
			t.Fatalf("exit codes %d and %d\n%s%s", won.code, lost.code, won.stderr, lost.stderr)
		}
		had := regexp.MustCompile(`resourceVersion: "(\d+)"`).FindStringSubmatch(read)[1]
		has := strings.Fields(won.stdout)
		versions := fmt.Sprintf("(you had version %s, the store has %s)", had, has[len(has)-1])
		hint := regexp.MustCompile(`portolan (diff .*)\n`).FindStringSubmatch(lost.stderr)
		if !strings.Contains(lost.stderr, versions) || hint == nil {
			t.Fatalf("the conflict does not say %s and which command shows it: %s", versions, lost.stderr)
		}
		stored := address.FindString(s.must("", "get", "se/a", "-n", "shop", "-o", "yaml"))
		shown := s.try("", strings.Fields(hint[1])...)
		if shown.code != 2 || !strings.Contains(shown.stdout, "-  - address: "+address.FindString(read)+"\n+  - address: "+stored+"\n") {
			t.Errorf("portolan %s: exit code %d\n%s%s", hint[1], shown.code, shown.stdout, shown.stderr)
		}
	}
	expectEqual(t, "changes", len(revisions(s.must("", "history", "se/a", "-n", "shop"))), 6)
}
