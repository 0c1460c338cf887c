package spelling_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/spelling"
)

func TestSimilar(t *testing.T) {
	t.Parallel()
	for pair, want := range map[string]bool{
		"statu status": true, "stauts status": true, "al all-namespaces": true, "gatway gateway": true, "prot port": true, "HOSTS hosts": true,
		"get delete": false, "vs dr": false, "x export": false, "pods proxy": false, "host port": false, "name spec": false,
	} {
		word, name, _ := strings.Cut(pair, " ")
		if spelling.Similar(word, name) != want {
			t.Errorf("Similar(%s, %s) is not %t", word, name, want)
		}
	}
	if long := strings.Repeat("x", 1<<20); spelling.Similar(long, "hosts") || spelling.Similar("hosts", long) {
		t.Error("a very long word is similar to a name")
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"ports", "port", "hosts", "exportTo", "resolution"}
	for word, want := range map[string]string{
		"prot": "port", "port": "port", "prots": "ports", "Hosts": "hosts", "hots": "hosts", "resolutoin": "resolution", "exportto": "exportTo", "res": "resolution",
		"weight": "", "": "",
	} {
		if got := spelling.Nearest(word, names); got != want {
			t.Errorf("Nearest(%q) is %q, want %q", word, got, want)
		}
	}
}
