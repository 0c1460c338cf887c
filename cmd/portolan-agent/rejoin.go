package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
)

// membership is who a machine is in the mesh. The zero value is that of a machine that has not
// joined.
type membership struct{ namespace, account, group string }

func memberOf(p config.Proxy) membership {
	return membership{p.Namespace, p.ServiceAccount, p.Group}
}

func invitedAs(in invitation.Invitation) membership {
	return membership{in.Namespace, in.ServiceAccount, in.Group}
}

// String names the account and the group.
func (m membership) String() string {
	if m.group == "" {
		return m.namespace + "/" + m.account + ", in no group"
	}
	return m.namespace + "/" + m.account + ", in the group " + m.group
}

// mayBecome returns an error if joining would make the machine another one, and nobody has asked for
// that.
func (m membership) mayBecome(next membership, replace bool) error {
	if m == (membership{}) || m == next || replace {
		return nil
	}
	unregistered := ""
	if next.group == "" && m.group != "" {
		unregistered = ", so it would not be registered any more"
	}
	return exit.With(exit.Data, fmt.Errorf("the machine is %s, and the invitation is for %s%s: nothing has changed here; add --replace if it is to become that", m, next, unregistered))
}

// reload says what the running agent does with what join has written, empty if none runs. One that is
// to be another machine keeps its certificate until it is started again.
func reload(ctx context.Context, c config.Config, file string, was membership) string {
	path, method := "/reload", http.MethodPost
	now := memberOf(c.Proxy)
	replaced := was != (membership{}) && was != now
	if replaced {
		path, method = "/status", http.MethodGet
	}
	_, err := callAgent(ctx, c.StatusSocket(), method, path)
	switch {
	case err != nil:
		return ""
	case replaced:
		return fmt.Sprintf("The running agent goes on as %s until it is started again. Do that now:\n  %s", was, howToRestart(file))
	}
	return "The running agent has the new certificate. If its file is another now, start it again."
}

// howToRestart returns the command that starts an agent again that runs.
func howToRestart(file string) string {
	if file == config.DefaultFile {
		if _, err := os.Stat(packagedDropIns); err == nil {
			return "systemctl restart portolan-agent"
		}
	}
	return "end it, and then: " + howToStart(file)
}
