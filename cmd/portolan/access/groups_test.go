package access

import (
	"fmt"
	"strings"
	"testing"
)

// TestInstead: whoever names a group that is not there is told what to type.
func TestInstead(t *testing.T) {
	t.Parallel()
	var many []place
	for i := range 8 {
		many = append(many, place{fmt.Sprint("n", i), "web"})
	}
	for name, c := range map[string]struct {
		all  []place
		want string
	}{
		"none at all":         {nil, "there is no WorkloadGroup: apply one, or give --service-account for a machine that does not register itself"},
		"in other namespaces": {[]place{{"test", "web"}, {"prod", "web"}, {"shop", "wed"}}, "a group of that name is elsewhere: give -n prod --group web, -n test --group web"},
		"in many":             {many, "a group of that name is elsewhere: give -n n0 --group web, -n n1 --group web, -n n2 --group web, -n n3 --group web, -n n4 --group web, 3 more"},
		"a name is alike":     {[]place{{"shop", "webs"}, {"shop", "ratings"}, {"test", "webs"}}, "did you mean -n shop --group webs?"},
		"others":              {[]place{{"shop", "ratings"}, {"test", "webs"}}, "the namespace has others: give -n shop --group ratings, or apply the group"},
		"nothing is there":    {[]place{{"test", "ratings"}, {"prod", "api"}}, "namespace shop has no WorkloadGroup: give -n prod --group api, -n test --group ratings, or apply the group"},
	} {
		if got := instead(place{"shop", "web"}, c.all); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestInviteIntoAGroupThatIsElsewhere: the command says so, and makes no token.
func TestInviteIntoAGroupThatIsElsewhere(t *testing.T) {
	t.Parallel()
	a, _ := startTokens(t)
	a.Must(t, "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: web, namespace: prod}\nspec: {template: {serviceAccount: web}}\n", "apply", "-f", "-")
	out := a.Do(t, "", "machine", "invite", "-n", "shop", "--group", "web", "--api-url", "https://mesh.example.com:15080")
	if out.Code == 0 || !strings.Contains(out.Err, `"web" not found: a group of that name is elsewhere: give -n prod --group web`) {
		t.Errorf("%+v", out)
	}
	if out := a.Must(t, "", "token", "list", "-A"); strings.Contains(out, "web") {
		t.Errorf("a token is made:\n%s", out)
	}
}
