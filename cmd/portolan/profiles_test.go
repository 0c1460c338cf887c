package main

import (
	"net/http"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

// TestProfilesAreShownWhenAskedFor: profiles are served only with --pprof.
func TestProfilesAreShownWhenAskedFor(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]int{"--pprof": http.StatusOK, "--log-level=info": http.StatusNotFound} {
		server, _, stop := serveIn(t, t.TempDir(), flag)
		answer, err := http.Get(server + serve.ProfilesPath + "heap?gc=1")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s, want %d", flag, answer.Status, want)
		}
		stop()
	}
}
