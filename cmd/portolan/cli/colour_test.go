package cli

import (
	"regexp"
	"strings"
	"testing"
)

var escapes = regexp.MustCompile(`\x1b\[[0-9]*m`)

// TestPaintTable: status words have colours, other words have none, and columns are as wide as what
// is seen.
func TestPaintTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		rows    [][]string
		painted []string
	}{
		{"states", [][]string{{"NODE", "CDS", "RDS"}, {"rejected", "SYNCED 3m", "REJECTED 12s"}, {"stale", "STALE 4s", ""}}, []string{"\x1b[32mSYNCED 3m\x1b[0m", "\x1b[31mREJECTED 12s\x1b[0m", "\x1b[33mSTALE 4s\x1b[0m"}},
		{"conditions", [][]string{{"CONDITION", "STATUS"}, {"Accepted", "True"}, {"ResolvedRefs", "False"}, {"Rejected", "True"}, {"Conflicted", "False"}, {"Programmed", "Unknown"}}, []string{"\x1b[32mTrue\x1b[0m", "\x1b[31mFalse\x1b[0m", "\x1b[31mTrue\x1b[0m", "\x1b[32mFalse\x1b[0m", "\x1b[33mUnknown\x1b[0m"}},
		{"findings", [][]string{{"FINDING", "SEVERITY", "FIELD"}, {"PTL0102", "error", "error"}, {"PTL0103", "warning", ""}, {"PTL0104", "info", ""}}, []string{"\x1b[31merror\x1b[0m", "\x1b[33mwarning\x1b[0m"}},
		{"rows without a header", [][]string{{"  rejected", "vm-17", "! no \"v3\""}, {"  offline", "vm-9"}}, []string{"\x1b[31m  rejected\x1b[0m", "\x1b[31m! no \"v3\"\x1b[0m", "\x1b[33m  offline\x1b[0m"}},
		{"names and headers", [][]string{{"NAME", "STATUS", "HEALTHY", "STALE"}, {"error", "True", "1", ""}, {"warning", "ENDEDLY", "0", ""}}, nil},
	} {
		var written strings.Builder
		if err := WriteTable(&written, c.rows); err != nil {
			t.Fatal(err)
		}
		got := paintTable(c.rows, written.String())
		painted := regexp.MustCompile(`\x1b\[[1-9][0-9]*m[^\x1b]*\x1b\[0m`).FindAllString(got, -1)
		if strings.Join(painted, "|") != strings.Join(c.painted, "|") {
			t.Errorf("%s: %q, want %q", c.name, painted, c.painted)
		}
		if seen := escapes.ReplaceAllString(got, ""); seen != written.String() {
			t.Errorf("%s: %q is seen, want %q", c.name, seen, written.String())
		}
	}
}

// TestPaintTableOfSeveralLines: a cell of several lines is printed as it is.
func TestPaintTableOfSeveralLines(t *testing.T) {
	t.Parallel()
	if got := paintTable([][]string{{"STALE", "a\nb"}}, "STALE  a\nb\n"); got != "STALE  a\nb\n" {
		t.Errorf("%q", got)
	}
}

func TestPaintDiff(t *testing.T) {
	t.Parallel()
	diff := "# why\n--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n-old\n+new"
	got := paintDiff(diff)
	if want := "# why\n\x1b[1m--- a\x1b[0m\n\x1b[1m+++ b\x1b[0m\n\x1b[36m@@ -1,2 +1,2 @@\x1b[0m\n same\n\x1b[31m-old\x1b[0m\n\x1b[32m+new\x1b[0m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
