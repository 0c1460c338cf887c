package objects

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// The default of --timeout, and that for a change in phases: two of them end after a minute at the
// latest, and then the proxies take the last.
const (
	waitTimeout   = 30 * time.Second
	phasesTimeout = waitTimeout + 2*time.Minute
)

// hasPhases says whether a change of objects of a kind is taken in phases, of which the store
// shows each.
func hasPhases(kind *schema.Schema) bool {
	return kind != nil && kind.GroupVersionKind == schema.PeerAuthentication
}

// waitForPhases has the change be done when its phases are over. of is an object by which one can
// wait on, the zero Key for none.
func (o *waitFlags) waitForPhases(of config.Key) {
	o.phases = true
	if of != (config.Key{}) {
		o.again = fmt.Sprintf("portolan wait %s/%s -n %s", strings.ToLower(of.Kind.Kind), of.Name, of.Namespace)
	}
	if o.anyTimeout == nil || !o.anyTimeout() {
		o.timeout = phasesTimeout
	}
}

// published returns the query for everything that a server has published.
func published(p admin.Propagation) url.Values {
	return url.Values{"revision": {strconv.FormatInt(p.Published, 10)}}
}

// whomPhasesAwait replaces how far a change has come by how far its present phase has. A user who
// may not ask about the whole store is not told.
func (e *environment) whomPhasesAwait(ctx context.Context, c *client.Client, p *admin.Propagation) error {
	var now admin.Propagation
	err := e.propagation(ctx, c, published(*p), &now)
	if apierrors.IsForbidden(err) {
		return nil
	}
	*p = now
	return err
}

// stillInPhases is the error when time is up before the last phase.
func (o *waitFlags) stillInPhases(p admin.Propagation) error {
	whom := "the next phase begins in a moment"
	if p.Waiting > 0 {
		whom = fmt.Sprintf("the next phase begins when %s %s taken this one, or after a minute", cli.ProxyCount(p.Waiting), haveOrHas(p.Waiting))
	}
	again := o.again
	if again == "" {
		again = "portolan get peerphases -A"
	}
	return exit.With(exit.Differences, fmt.Errorf("not all follow the change within %s (%s). It goes on without this command: %s. See its end with %s", o.timeout, strings.Join(p.Phases, ", "), whom, again))
}

func haveOrHas(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}
