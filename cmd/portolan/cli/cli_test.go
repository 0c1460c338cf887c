package cli

import "testing"

func TestAgent(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]Environment{
		"portolan/v1 store defrag (anna)": {Version: "v1", command: "store defrag", user: "anna"},
		"portolan/v1":                     {Version: "v1"},
	} {
		if got := e.Agent(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
