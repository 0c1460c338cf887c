package objects

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"

	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// squeezed returns a table without what differs from run to run: single spaces between cells,
// no times, and anna as the local user.
func squeezed(table string) string {
	table = strings.ReplaceAll(table, "("+cli.LocalUser()+")", "(anna)")
	table = regexp.MustCompile(`\d+s ago`).ReplaceAllString(table, "now")
	return regexp.MustCompile(` +`).ReplaceAllString(table, " ")
}

// voyage starts an API with a history: revisions 2 to 6.
func voyage(t *testing.T) clitest.API {
	t.Helper()
	a := startAPI(t)
	a.Must(t, clitest.Entry("a", ", namespace: shop")+"---\n"+clitest.Entry("b", ", namespace: shop"), "apply", "-f", "-", "-m", "first light")
	a.Must(t, entryAt("a", "10.0.0.2"), "apply", "-f", "-")
	a.Must(t, clitest.Entry("x", ", namespace: edge"), "apply", "-f", "-")
	a.Must(t, "", "delete", "se/b", "-n", "shop", "--message", "not needed")
	a.Must(t, entryAt("a", "10.0.0.3"), "apply", "-f", "-")
	return a
}

// entryAt returns an entry in namespace shop with another address.
func entryAt(name, address string) string {
	return strings.Replace(clitest.Entry(name, ", namespace: shop"), "10.0.0.1", address, 1)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	clitest.Same(t, "of one that changed", squeezed(a.Must(t, "", "history", "se/a", "-n", "shop")), `REV WHEN WHO FROM CHANGE MESSAGE
6 now local apply (anna) endpoints[0].address 10.0.0.2 -> 10.0.0.3 -
3 now local apply (anna) endpoints[0].address 10.0.0.1 -> 10.0.0.2 -
2 now local apply (anna) created first light
`)
	clitest.Same(t, "of one that is gone", squeezed(a.Must(t, "", "history", "serviceentry", "b", "-n", "shop")), `REV WHEN WHO FROM CHANGE MESSAGE
5 now local delete (anna) deleted not needed
2 now local apply (anna) created first light
`)
	o := a.Do(t, "", "history", "se/shop/a", "--limit", "1")
	if !strings.HasPrefix(strings.Split(o.Out, "\n")[1], "6 ") || strings.Count(o.Out, "\n") != 2 || o.Err != "These are the newest 1; --limit 0 shows all.\n" {
		t.Errorf("%+v", o)
	}
	if all := a.Must(t, "", "history", "se/shop/a", "--limit", "0"); strings.Count(all, "\n") != 4 {
		t.Errorf("%s", all)
	}
}

func TestHistoryForPrograms(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	for _, output := range []string{"json", "yaml"} {
		text, err := yaml.YAMLToJSON([]byte(a.Must(t, "", "history", "se/a", "-n", "shop", "-o", output)))
		var list record.List
		if err != nil || json.Unmarshal(text, &list) != nil || list.Kind != "RecordList" || len(list.Items) != 3 {
			t.Fatalf("%s: %s, %v", output, text, err)
		}
		r := list.Items[1]
		if r.Revision != "3" || r.User != "local" || !strings.HasSuffix(r.Tool, " apply ("+cli.LocalUser()+")") || !strings.Contains(string(r.Changes[0].Before), "10.0.0.1") {
			t.Errorf("%+v", r)
		}
	}
}

func TestHistoryErrors(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"se/never", exit.Failure, "serviceentry/default/never: there is no history of it"},
		{"se", exit.Usage, "name one object"},
		{"se/a se/b", exit.Usage, "name one object"},
		{"teapot/a", exit.Usage, "unknown kind"},
		{"se/a --limit -1", exit.Usage, "--limit -1"},
		{"se/a -o wide", exit.Usage, "table, json or yaml"},
		{"", exit.Usage, "portolan history --help"},
		{"", exit.Usage, "portolan audit shows"},
		{"se/never", exit.Failure, "-n names another namespace"},
	} {
		o := a.Do(t, "", append([]string{"history"}, strings.Fields(test.args)...)...)
		if o.Code != test.code || !strings.Contains(o.Err, test.says) || o.Out != "" {
			t.Errorf("%s: %+v", test.args, o)
		}
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	clitest.Same(t, "everything", squeezed(a.Must(t, "", "audit")), `REV WHEN WHO FROM CHANGES MESSAGE
6 now local apply (anna) serviceentry/shop/a configured -
5 now local delete (anna) serviceentry/shop/b deleted not needed
4 now local apply (anna) serviceentry/edge/x created -
3 now local apply (anna) serviceentry/shop/a configured -
2 now local apply (anna) 2 objects created first light
`)
	lines := func(args ...string) string {
		var revisions []string
		for _, line := range strings.Split(a.Must(t, "", append([]string{"audit"}, args...)...), "\n") {
			if revision, _, _ := strings.Cut(line, " "); revision != "REV" && revision != "" {
				revisions = append(revisions, revision)
			}
		}
		return strings.Join(revisions, " ")
	}
	for args, want := range map[string]string{
		"-n edge": "4", "-A": "6 5 4 3 2", "se": "6 5 4 3 2", "vs": "", "se/b -n shop": "5 2", "se a -n shop --limit 2": "6 3",
		"--by local": "6 5 4 3 2", "--by anna": "", "--since 1h": "6 5 4 3 2", "--since 1ns": "", "--by local --limit 1": "6",
	} {
		clitest.Same(t, args, lines(strings.Fields(args)...), want)
	}
	var list record.List
	if err := json.Unmarshal([]byte(a.Must(t, "", "audit", "-o", "json", "-n", "edge")), &list); err != nil || len(list.Items[0].Changes[0].After) == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, args := range []string{"se,vs", "se a b", "se/a vs/b", "--since -1h", "--limit -1", "-o wide", "teapot", "-A -n shop", "se/a -A"} {
		if o := a.Do(t, "", append([]string{"audit"}, strings.Fields(args)...)...); o.Code != exit.Usage || o.Out != "" {
			t.Errorf("%s: %+v", args, o)
		}
	}
}

func TestChangesOfManyObjects(t *testing.T) {
	t.Parallel()
	for want, outcomes := range map[string]string{
		"3 objects: 1 created, 2 configured": "configured created configured",
		"2 objects deleted":                  "deleted deleted",
		"vm/shop/a deleted":                  "deleted",
	} {
		var r record.Record
		for _, outcome := range strings.Fields(outcomes) {
			r.Changes = append(r.Changes, record.Change{Kind: "VM", Namespace: "shop", Name: "a", Outcome: outcome})
		}
		clitest.Same(t, outcomes, changesOf(r), want)
	}
	clitest.Same(t, "one of many", objectCounts(map[string]int{"deleted": 1}), "1 object deleted")
}

// TestRecordsOfSeveralPages: pages of records are read until there are enough records.
func TestRecordsOfSeveralPages(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	documents, err := config.Decode("", []byte(clitest.Entry("a", ", namespace: shop")), a.Store.Schemas().Type)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1203 {
		object := documents[0].Config.Clone()
		object.Labels = map[string]string{"n": strconv.Itoa(i)}
		if _, _, err := a.Store.Apply(t.Context(), []storage.Op{{Verb: storage.Put, Config: object}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(a.Must(t, "", "history", "se/a", "-n", "shop", "--limit", "0"), "\n"); n != 1001 {
		t.Errorf("%d lines", n) // the memory store keeps 1,000 records
	}
}

func TestWhereAChangeCameFrom(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]record.Record{
		"apply (anna)":              {Tool: "portolan/v1 apply (anna)", Address: "127.0.0.1:80"},
		"rollback (anna) 192.0.2.1": {Tool: "portolan/v1 rollback (anna)", Address: "192.0.2.1:80"},
		"kubectl/v1.30":             {Tool: "kubectl/v1.30 (linux/amd64) x", Address: "[::1]:80"},
		"portolan/v1":               {Tool: "portolan/v1"},
		"2001:db8::1":               {Address: "[2001:db8::1]:80"},
		"x y":                       {Tool: "x", Address: "y"},
		"evil [2J":                  {Tool: "portolan/v1 evil\x1b[2J"},
	} {
		clitest.Same(t, r.Tool+r.Address, origin(r), want)
	}
}

func TestMessageFlag(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	for _, bad := range []string{"two\nlines", strings.Repeat("x", 1025), "\xff"} {
		for _, command := range []string{"apply", "delete"} {
			if o := a.Do(t, clitest.Entry("a", ""), command, "-f", "-", "-m", bad); o.Code != exit.Usage || !strings.Contains(o.Err, "--message") {
				t.Errorf("%s -m %.8q: %+v", command, bad, o)
			}
		}
	}
	a.Must(t, clitest.Entry("a", "")+"---\n"+clitest.Entry("b", ""), "apply", "-f", "-", "--chunks", "1", "-m", "für alle")
	if n := strings.Count(a.Must(t, "", "audit"), "für alle"); n != 2 {
		t.Errorf("%d parts have the message", n)
	}
}

func TestAgesOfRecords(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	env := &environment{&cli.Environment{Stdout: &out, Now: func() time.Time { return now }}}
	r := record.Record{Revision: "7", Time: now.Add(-3 * time.Hour), User: "ci", Tool: "curl/8"}
	if err := env.recordTable("CHANGE", []record.Record{r}, false, func(record.Record) string { return "created" }); err != nil {
		t.Fatal(err)
	}
	clitest.Same(t, "table", out.String(), "REV  WHEN    WHO  FROM    CHANGE\n7    3h ago  ci   curl/8  created\n")
}
