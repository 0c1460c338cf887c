package main

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
)

// TestWhatJoinNamesIsThere: an address, an interface or an Envoy that the machine does not have is
// refused before the invitation is used.
func TestWhatJoinNamesIsThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags joinFlags
		want  []string
	}{
		"nothing named":        {},
		"an address, an Envoy": {flags: joinFlags{ips: []string{"10.0.0.1"}, envoy: "sh"}},
		"no such interface":    {joinFlags{ips: []string{"eth99"}}, []string{"--ip: ", "eth99", "nothing has changed"}},
		"no such range":        {joinFlags{ips: []string{"203.0.113.0/30"}}, []string{"--ip: ", "203.0.113.0/30"}},
		"no such Envoy, too":   {joinFlags{ips: []string{"eth99"}, envoy: "/nope"}, []string{"--ip: ", "--envoy: ", "/nope"}},
	} {
		err := c.flags.present()
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, word := range c.want {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q is not in %v", name, word, err)
			}
		}
	}
}

// TestARefusedInvitationNamesOneRemedy: the command that makes another invitation for the same.
func TestARefusedInvitationNamesOneRemedy(t *testing.T) {
	t.Parallel()
	refused := apierrors.NewUnauthorized(join.ErrUnknown.Error())
	for want, in := range map[string]invitation.Invitation{
		"portolan machine invite -n shop --group web":           {Namespace: "shop", ServiceAccount: "web", Group: "web"},
		"portolan machine invite -n shop --service-account web": {Namespace: "shop", ServiceAccount: "web"},
	} {
		err := (&environment{}).notJoined(t.Context(), config.Config{}, in, refused)
		if got := err.Error(); !strings.HasSuffix(got, want) || strings.Count(got, "portolan ") != 1 || !strings.Contains(got, "nothing has changed here") || exit.Of(err) != exit.Forbidden {
			t.Errorf("%v, exit code %d", err, exit.Of(err))
		}
	}
}
