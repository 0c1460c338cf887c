package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// waitHelp is the help text of apply and wait about waiting.
const waitHelp = `

Proxies have taken a change when they acknowledged all that it makes of their
configuration; those for which it makes no difference are not concerned and count
at once. A proxy that was connected in the last two minutes is expected back and
waited for, as after a restart of the server. Offline are proxies that left earlier,
within a day: they are told of and not waited for, since they get it when they come
back; those that were last seen more than an hour ago are only counted. The proxies
of all servers of the store count. Exit code 2 is that the change was not taken by
--threshold percent of these proxies, within --timeout or because they refused it.

Exit code 3 is that the change concerns no proxy, or none is known: nobody refused
it, and nobody took it. --min-proxies N waits until at least N proxies that are
concerned have acknowledged it; with --min-proxies 0, none has to, and the exit code
is 0.`

// waitFlags say how long to wait, and for how many proxies.
type waitFlags struct {
	timeout   time.Duration
	threshold string
	least     int
	anyLeast  func() bool // whether the user gave least; nil for no
	upTo      bool        // it waits for everything up to a revision, not for one change
	output    string      // json or yaml; empty for people
	// phases: the change is done when its phases are over. again is the command that waits on.
	phases     bool
	again      string
	through    bool         // its phases are over, and all have to take the last
	anyTimeout func() bool  // whether the user gave timeout; nil for no
	plugins    []config.Key // the WasmPlugins whose modules have to be there
}

func (o *waitFlags) register(c *cobra.Command) {
	c.Flags().DurationVar(&o.timeout, "timeout", waitTimeout, fmt.Sprintf("how long to wait for proxies; of a change in phases %s where it is not given", phasesTimeout))
	c.Flags().StringVar(&o.threshold, "threshold", "100", "percent of the proxies that have to take it, or not be concerned")
	c.Flags().IntVar(&o.least, "min-proxies", 0, "how many proxies have to be concerned by it and take it, at least; with 0 it is no matter that none is (exit code 3)")
	o.anyLeast = func() bool { return c.Flags().Changed("min-proxies") }
	o.anyTimeout = func() bool { return c.Flags().Changed("timeout") }
}

// only refuses flags of a wait that is not asked for. The hint ends the message.
func (o *waitFlags) only(wait bool, given func(flag string) bool, hint string) error {
	for _, flag := range []string{"timeout", "threshold", "min-proxies"} {
		if given(flag) && !wait {
			return exit.With(exit.Usage, fmt.Errorf("--%s is for --wait: give both or neither%s", flag, hint))
		}
	}
	return nil
}

func (o *waitFlags) check() error {
	if o.timeout <= 0 {
		return exit.With(exit.Usage, fmt.Errorf("--timeout %s: give a time such as 30s", o.timeout))
	}
	if o.least < 0 {
		return exit.With(exit.Usage, fmt.Errorf("--min-proxies %d: give a number of proxies, from 0 on", o.least))
	}
	if share, err := o.share(); err != nil || share < 0 || share > 1 {
		return exit.With(exit.Usage, fmt.Errorf("--threshold %s: give a percentage from 0 to 100", o.threshold))
	}
	return nil
}

func (o *waitFlags) share() (float64, error) {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(o.threshold, "%"), 64)
	return percent / 100, err
}

func newWaitCommand(env *environment) *cobra.Command {
	var o waitFlags
	var objects waitFor
	among := &objects.among
	var revision int64
	var namespace string
	c := &cobra.Command{
		Use:   "wait (--revision N | KIND/NAME | (KIND/NAME... | KIND --all | KIND -l LABELS) --for=WHAT)",
		Short: "Wait until proxies have taken a change, or until an object is as it should be",
		Long: `Wait until the proxies have taken everything up to a revision, or the last change
of an object, and say who has not. -o json prints how far it has come when the waiting
ends, whatever the exit code.` + waitForHelp + waitHelp,
		Example: `  portolan wait vs/reviews -n shop
  portolan wait --revision 42 --timeout 2m --threshold 99
  portolan wait vs/reviews -n shop -o json
  portolan wait vs/reviews -n shop --for=condition=Programmed
  portolan wait we --all -n shop --for=condition=Healthy=False --timeout 1m
  portolan wait vs/reviews -n shop --for=jsonpath='{.spec.hosts[0]}'=reviews.shop
  portolan wait se/reviews -n shop --for=create && portolan wait se/old -n shop --for=delete`,
		ValidArgsFunction: completeBeside(env),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if c.Flags().Changed("for") || among.asked() {
				return objects.run(c, env.withSide(), args, namespace, &o)
			}
			if len(args) > 2 {
				return exit.With(exit.Usage, errors.New("name one object to wait for: KIND/NAME or KIND NAME; --for takes several"))
			}
			if c.Flags().Changed("revision") != (len(args) == 0) {
				return exit.With(exit.Usage, errors.New("name what to wait for: --revision N, or KIND/NAME"))
			}
			if len(args) == 0 {
				if err := checkRevision("--revision", revision); err != nil {
					return err
				}
				return env.wait(c.Context(), url.Values{"revision": {strconv.FormatInt(revision, 10)}}, o)
			}
			key, kind, err := oneObject(env.withSide(), args, namespace, "wait for")
			if err != nil {
				return err
			}
			if cli.BesideMesh(key.Kind) {
				return exit.With(exit.Usage, fmt.Errorf("%s concerns no proxy: say by --for what to wait for", key))
			}
			if hasPhases(kind) {
				o.waitForPhases(key)
			}
			o.waitForModule(key)
			if err = env.wait(c.Context(), changeOf(key), o); apierrors.IsNotFound(err) {
				return env.withSide().unserved(c.Context(), key)
			}
			return err
		},
	}
	c.Flags().Int64Var(&revision, "revision", 0, "wait for everything up to this revision of the store")
	c.Flags().StringVarP(&namespace, "namespace", "n", "", `namespace of the object (default $PORTOLAN_NAMESPACE, else "default")`)
	cli.RegisterOutput(c, &o.output, "", "json", "yaml")
	c.Flags().Lookup("output").Usage += ": how far the change has come, also where that is not far enough"
	o.register(c)
	objects.register(c)
	return c
}

// changeOf returns the query for the last change of an object.
func changeOf(key config.Key) url.Values {
	return url.Values{"group": {key.Kind.Group}, "kind": {key.Kind.Kind}, "namespace": {key.Namespace}, "name": {key.Name}}
}

// waitForBatch waits until the proxies have taken what a batch changed. If it changed nothing,
// it waits for everything up to the batch's revision.
func (e *environment) waitForBatch(ctx context.Context, result *batch.Result, o waitFlags) error {
	query := url.Values{"revision": {result.Revision}}
	for _, r := range result.Results {
		kind, of := e.Schemas.Named(r.Kind), config.Key{}
		if kind != nil && r.Outcome != string(storage.Deleted) {
			of = config.Key{Kind: kind.GroupVersionKind, Namespace: r.Namespace, Name: r.Name}
		}
		o.waitForModule(of)
		if r.Outcome != string(storage.Unchanged) {
			query = url.Values{"change": {result.Revision}}
			if hasPhases(kind) {
				o.waitForPhases(of)
			}
		}
	}
	err := e.wait(ctx, query, o)
	if key, ok := inBatch(e.Schemas, result); ok && apierrors.IsForbidden(err) {
		// The user may not ask about the whole store, so ask about one object, which tells as
		// much.
		return e.wait(ctx, changeOf(key), o)
	}
	return err
}

// inBatch returns an object of a batch that still exists, preferably a changed one, or false
// if there is none.
func inBatch(schemas schema.Set, result *batch.Result) (key config.Key, ok bool) {
	for _, r := range result.Results {
		kind := schemas.Named(r.Kind)
		if kind == nil || r.Outcome == string(storage.Deleted) || ok && r.Outcome == string(storage.Unchanged) {
			continue
		}
		key, ok = config.Key{Kind: kind.GroupVersionKind, Namespace: r.Namespace, Name: r.Name}, true
	}
	return key, ok
}

// The pauses between two polls, and between two lines about progress if there is no terminal.
const (
	askFirst     = 20 * time.Millisecond
	askLast      = 500 * time.Millisecond
	tellInterval = 5 * time.Second
)

// wait polls until enough proxies have taken the change, no more can, or time is up. It then
// prints the result.
func (e *environment) wait(ctx context.Context, query url.Values, o waitFlags) error {
	var p admin.Propagation
	o.upTo = query.Has("revision")
	began := e.Now()
	err := e.CallFor(ctx, 0, func(ctx context.Context, c *client.Client) error {
		reported, told := began, e.Progress()
		defer told.Clear()
		for pause := askFirst; ; pause = min(2*pause, askLast) {
			before := p
			if err := e.propagation(ctx, c, query, &p); o.through && apierrors.IsForbidden(err) {
				p = before
				return nil
			} else if err != nil {
				return err
			}
			p.MissingModules = o.missing(p)
			waited := e.Now().Sub(began)
			switch {
			case waited >= o.timeout && o.phases && len(p.Phases) > 0:
				return e.whomPhasesAwait(ctx, c, &p)
			case waited >= o.timeout, isFinal(p, o) && !(o.phases && enoughTaken(p, o)):
				return nil
			case o.phases && len(p.Phases) == 0 && enoughTaken(p, o): // then all have to take the last
				o.phases, o.upTo, o.through, query = false, true, true, published(p)
				continue
			}
			line := distribution(p)
			told.Tell(line)
			if !e.Live.Shown && e.Now().Sub(reported) >= tellInterval {
				reported = e.Now()
				fmt.Fprintln(e.Stderr, line+"  "+cli.RoundDuration(waited).String())
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(min(pause, o.timeout-waited)):
			}
		}
	})
	if err != nil {
		return err
	}
	return e.tellPropagation(p, o, e.Now().Sub(began))
}

// propagation polls once, within --request-timeout.
func (e *environment) propagation(ctx context.Context, c *client.Client, query url.Values, into *admin.Propagation) error {
	if e.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.Timeout)
		defer cancel()
	}
	*into = admin.Propagation{}
	return c.JSON(ctx, admin.PropagationPath+"?"+query.Encode(), into)
}

func enoughTaken(p admin.Propagation, o waitFlags) bool {
	return len(p.Faults) == 0 && len(p.MissingModules) == 0 && shared(p, o) && p.Accepted >= o.least
}

// shared says whether a sufficient share of the connected proxies have taken the change, or
// are not concerned.
func shared(p admin.Propagation, o waitFlags) bool {
	share, _ := o.share() // was checked
	return len(p.Behind) == 0 && float64(p.Accepted+p.NotConcerned) >= share*float64(p.Proxies())
}

// A proxy that has refused a change does not take it later, but other proxies may
// connect.
func isFinal(p admin.Propagation, o waitFlags) bool {
	if len(p.MissingModules) > 0 {
		return len(p.Behind) == 0 && moduleFault(p) != "" // a server that is behind tells of a former version
	}
	return enoughTaken(p, o) || len(p.Faults) > 0 || len(p.Behind) == 0 && p.Waiting == 0 && !shared(p, o)
}

var errUnconcerned = exit.Quietly(exit.Unconcerned, "no proxy has taken the change")

// tellPropagation prints how far a change has come. It returns an error if that is not far
// enough.
func (e *environment) tellPropagation(p admin.Propagation, o waitFlags, took time.Duration) error {
	if o.output != "" {
		if err := cli.WriteDocument(e.Stdout, o.output, p); err != nil {
			return err
		}
		return e.checkPropagation(p, o)
	}
	fmt.Fprintln(e.Stdout, distribution(p)+"  "+cli.RoundDuration(took).String())
	if len(p.Behind) == 0 && p.Concerned() == 0 {
		line := reachesNoProxy(p)
		if o.through { // the last revision alone concerns none
			line = "  no phase of the change goes on"
		}
		if o.inVain(p) {
			line += " (exit code 3; 0 with --min-proxies 0)"
		}
		fmt.Fprintln(e.Stdout, line)
	}
	if err := e.printLaggards(p); err != nil {
		return err
	}
	return e.checkPropagation(p, o)
}

// checkPropagation says why a change has not come far enough, nil where it has.
func (e *environment) checkPropagation(p admin.Propagation, o waitFlags) error {
	switch lacking := p.Rejected + p.Waiting; {
	case o.phases && len(p.Phases) > 0:
		return o.stillInPhases(p)
	case moduleFault(p) != "" && len(p.Behind) == 0:
		return exit.With(exit.Differences, fmt.Errorf("a module is not fetched, and is tried again: %s. %s", moduleFault(p), withoutModule))
	case len(p.MissingModules) > 0 && len(p.Behind) == 0:
		return exit.With(exit.Differences, fmt.Errorf("not all servers have the module of %s within %s. They go on fetching it. %s", missingPlugins(p), o.timeout, withoutModule))
	case enoughTaken(p, o) && o.inVain(p):
		return errUnconcerned
	case enoughTaken(p, o):
		return nil
	case len(p.Faults) > 0:
		return exit.With(exit.Differences, fmt.Errorf("it is not served as it stands in its source, but as it was before: %s", strings.Join(p.Faults, "; ")))
	case shared(p, o):
		return exit.With(exit.Differences, fmt.Errorf("revision %d was taken by %s within %s, and --min-proxies asks for %d", p.Revision, cli.ProxyCount(p.Accepted), o.timeout, o.least))
	case len(p.Behind) > 0:
		return exit.With(exit.Differences, fmt.Errorf("revision %d is not published by all servers within %s: %s is behind, and the server at %s has published %d",
			p.Revision, o.timeout, cli.FormatList(cli.MapSlice(p.Behind, cli.ServerName), false), e.Server, p.Published))
	case p.Waiting > 0:
		return exit.With(exit.Differences, fmt.Errorf("revision %d was not taken by %d of %d proxies within %s: see portolan proxy status", p.Revision, lacking, p.Proxies(), o.timeout))
	default:
		return exit.With(exit.Differences, fmt.Errorf("revision %d was refused by %d of %d proxies: see portolan proxy status", p.Revision, lacking, p.Proxies()))
	}
}

// inVain says whether no proxy is known, or the one change that is waited for concerns none, and
// the user has not said that none need be.
func (o *waitFlags) inVain(p admin.Propagation) bool {
	if o.anyLeast != nil && o.anyLeast() {
		return false
	}
	return p.Proxies() == 0 || !o.upTo && p.Concerned() == 0
}

// reachesNoProxy returns the line for a change that reaches no proxy.
func reachesNoProxy(p admin.Propagation) string {
	if p.Proxies() == 0 {
		return "  no proxy is concerned: none is connected"
	}
	return "  no proxy is concerned: it changes nothing for those that are connected"
}

// printLaggards prints which proxies and servers lack a change, and why.
func (e *environment) printLaggards(p admin.Propagation) error {
	var rows [][]string
	for _, t := range p.Problems {
		switch {
		case t.Rejected && (p.Rejected > 0 || t.Node == ""):
			rows = append(rows, []string{"  rejected", cli.NodeName(t.Node), strings.TrimSpace(t.Type + " " + t.Resource), fmt.Sprintf("rev %d", t.RejectedRevision), cli.Quoted(t.Message)})
		case !t.Rejected && p.Waiting > 0:
			rows = append(rows, []string{"  waiting", cli.NodeName(t.Node), t.Type, fmt.Sprintf("rev %d", t.Revision), "for " + cli.Age(e.Now(), t.Since)})
		}
	}
	away, returning := []progress.Place{}, 0
	for _, g := range p.Gone {
		if !g.Returning {
			away = append(away, g)
			continue
		}
		if returning++; returning <= cli.MaxOffline {
			rows = append(rows, []string{"  waiting", cli.NodeName(g.Node), "", "", "it was connected, and is expected back"})
		}
	}
	if err := cli.WriteTable(e.Stdout, rows); err != nil {
		return err
	}
	others := cli.Offline(away, p.Offline, e.Now(), false)
	for _, m := range p.MissingModules {
		others = append(others, []string{"  no module", pluginName(m.Plugin), "server " + cli.ServerName(m.Server) + ": " + cmp.Or(m.Fault, "it does not have it yet")})
	}
	for _, server := range p.Behind {
		others = append(others, []string{"  behind", "server " + cli.ServerName(server), "it has not published the revision yet"})
	}
	return cli.WriteTable(e.Stdout, others)
}

// distribution formats how far a change has come, in one line.
func distribution(p admin.Propagation) string {
	parts := []string{
		fmt.Sprintf("distributed  %d/%d proxies", p.Accepted+p.NotConcerned, p.Proxies()),
		fmt.Sprintf("accepted %d", p.Accepted), fmt.Sprintf("not concerned %d", p.NotConcerned),
	}
	for _, n := range []struct {
		what  string
		count int
	}{{"rejected", p.Rejected}, {"waiting", p.Waiting}, {"offline", p.Offline}} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", n.what, n.count))
		}
	}
	if len(p.Phases) > 0 {
		parts = append(parts, "phase "+strings.Join(p.Phases, ", "))
	}
	if n := len(p.MissingModules); n > 0 {
		parts = append(parts, fmt.Sprintf("modules missing %d", n))
	}
	if n := len(p.Behind); n > 0 {
		parts = append(parts, fmt.Sprintf("servers behind %d (%s)", n, cli.FormatList(cli.MapSlice(p.Behind, cli.ServerName), false)))
	}
	return strings.Join(parts, "  ")
}
