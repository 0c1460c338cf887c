package main

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestServersAreTriedInOrder: of several servers the first that accepts connections is called,
// by a flag and by a context; if none does, the error is about the first.
func TestServersAreTriedInOrder(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	const gone, alsoGone = "http://127.0.0.1:1", "unix:/no/such/socket"
	want := a.must(t, "", "get", "se", "-n", "shop", "-o", "name")
	for _, servers := range []string{a.URL + "," + gone, gone + "," + a.URL, alsoGone + ", " + gone + ", " + a.URL} {
		if o := do(t, "", "get", "se", "-n", "shop", "-o", "name", "--server", servers); o.code != exit.OK || o.out != want {
			t.Errorf("%s: %+v", servers, o)
		}
	}
	if o := do(t, "", "get", "se", "-n", "shop", "--server", gone+","+alsoGone); o.code != exit.Unreachable || !strings.Contains(o.err, "cannot reach the server at "+gone) {
		t.Errorf("none: %+v", o)
	}
}

func TestAmong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		some, others string
		want         bool
	}{
		{"https://a:1", "https://a:1", true},
		{"https://A:1/", "https://b:1,https://a:1", true},
		{"https://b:1,https://a:1", "https://a:1,https://b:1", true},
		{"https://a:1,https://c:1", "https://a:1,https://b:1", false},
		{"http://a:1", "https://a:1", false},
		{"", "https://a:1", false},
		{"https://a:1", "", false},
	} {
		if got := among(test.some, test.others); got != test.want {
			t.Errorf("%q among %q: %v", test.some, test.others, got)
		}
	}
}
