package verdict_test

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/xds/verdict"
)

// TestDocumentsHaveTheTableOfCodes compares the page about warnings with the codes.
func TestDocumentsHaveTheTableOfCodes(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../docs/operations/warnings.md", "-update` -->\n", "<!-- end of codes -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for the table", page)
	}
	var table strings.Builder
	table.WriteString("| code | severity | condition | what is odd | what happens |\n|---|---|---|---|---|\n")
	places := map[verdict.Code]string{verdict.PlaintextBegins: "of a change", verdict.SourceUnread: "of a source", verdict.HostShort: "none"}
	for k := range verdict.Kinds() {
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", k.Code.Names(), k.Severity, cmp.Or(k.Condition, places[k.Code]), k.Title, k.Effect)
	}
	want := head + begin + table.String() + end + tail
	switch {
	case want == string(text):
	case golden.FlagUpdate():
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not that of codes.go: go test ./xds/verdict -update", page)
	}
}
