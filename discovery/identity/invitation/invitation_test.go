package invitation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
)

func whole() invitation.Invitation {
	return invitation.Invitation{
		API: []string{"https://a.example:15080"}, XDS: []string{"a.example:15012", "[fd00::1]:15012"}, Token: "pjt_secret",
		Namespace: "shop", ServiceAccount: "web", Group: "web",
	}
}

// TestInvitation: the text gives back what it was made of, and no error shows its secret.
func TestInvitation(t *testing.T) {
	t.Parallel()
	in := whole()
	text, err := in.Text()
	if err != nil || strings.ContainsAny(text, " \n'\"$/+") {
		t.Fatalf("%q, %v", text, err)
	}
	got, err := invitation.Parse(" " + text + "\n")
	if diff := cmp.Diff(in, got); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	if s := in.String(); strings.Contains(s, in.Token) {
		t.Errorf("it shows %q", s)
	}
	for name, bad := range map[string]string{
		"cut": text[:len(text)-3], "longer": text + "aa", "changed": strings.Replace(text, text[20:21], "_", 1), "another word": "pjt_a_b_c", "empty": "", "too long": invitation.Prefix + strings.Repeat("a", 1<<20),
	} {
		_, err := invitation.Parse(bad)
		if err == nil || !strings.Contains(err.Error(), "portolan machine invite") || len(bad) > 20 && strings.Contains(err.Error(), bad[10:20]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFaultsOfAnInvitation come all at once, with what to do.
func TestFaultsOfAnInvitation(t *testing.T) {
	t.Parallel()
	_, err := invitation.Invitation{API: []string{"http://a"}, XDS: []string{"a"}}.Text()
	for _, want := range []string{`api "http://a": give a URL that begins with https://`, `xds "a": give host:port`, "token: is missing", "namespace: is missing", "serviceAccount: is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v says nothing of %q", err, want)
		}
	}
}
