package objects

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

type analyzeOptions struct {
	files     fileFlags
	all       bool
	suppress  []string
	threshold string
	output    string
}

func newAnalyzeCommand(env *environment) *cobra.Command {
	var o analyzeOptions
	c := &cobra.Command{
		Use:   "analyze",
		Short: "Find what has no effect, contends or leads nowhere",
		Long: `Find what is odd about the stored objects beside each other: a host that another
VirtualService has already, a destination that is not there, a Gateway that no
proxy runs. With -f, find what would be odd about the objects of these files if they
were applied, and what they would make odd about others; nothing is changed. What is
odd about other objects without them is left out, and counted. Endpoints of Consul and
of files have no object: what is odd about them is a finding on service/NAMESPACE/HOST.
A source that cannot be read is a finding on source/NAME, in all namespaces.

Each finding has a code that stays the same in all versions. --suppress CODE=OBJECT
leaves findings out; OBJECT is KIND/NAMESPACE/NAME or source/NAME, and may have * in it.
Codes of Istio's analysis, such as IST0101, are understood.

The exit code is 79 where there are findings of --failure-threshold or worse.`,
		Example: `  portolan analyze
  portolan analyze -n shop
  portolan analyze -f shop/
  portolan analyze --suppress PTL0104=destinationrule/shop/* --failure-threshold warning`,
		Args: filesOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(c.Context(), env)
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "findings of all namespaces, as without -n")
	f.StringArrayVar(&o.suppress, "suppress", nil, "leave out findings: CODE=KIND/NAMESPACE/NAME, with * for any; may be repeated")
	f.StringVar(&o.threshold, "failure-threshold", "error", "the exit code is 79 from this severity on: "+help.Alternatives(finding.Severities))
	cli.RegisterOutput(c, &o.output, "table", "json", "yaml")
	o.files.register(c, "analyze")
	f.Lookup("namespace").Usage = `only findings of this namespace; with -f it is that of objects that name none, too`
	return c
}

func (o *analyzeOptions) check() error {
	if err := cli.OneScope(o.all, o.files.namespace != ""); err != nil {
		return err
	}
	for _, s := range o.suppress {
		code, object, ok := strings.Cut(s, "=")
		if _, err := path.Match(object, ""); !ok || code == "" || strings.Count(object, "/") > 2 && !strings.HasPrefix(object, "source/") || err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--suppress %q: write CODE=KIND/NAMESPACE/NAME, as in PTL0104=destinationrule/shop/*", s))
		}
		if !isCode(code) {
			return exit.With(exit.Usage, fmt.Errorf("--suppress %q: there is no code %s", s, code))
		}
	}
	return cli.OneOf("--failure-threshold", o.threshold, finding.Severities...)
}

func (o *analyzeOptions) run(ctx context.Context, env *environment) error {
	operations, fileKeys, err := o.operations(ctx, env)
	if err != nil {
		return err
	}
	var list *finding.List
	found, ofStore := 0, 0
	err = env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		if list, err = c.Findings(ctx, o.files.namespace, operations); err != nil || len(operations) == 0 {
			return err
		}
		is, err := c.Findings(ctx, o.files.namespace, nil)
		if err != nil {
			return err
		}
		ofStore = leaveOut(list, is.Items, fileKeys)
		return nil
	})
	if err != nil {
		return err
	}
	found = len(list.Items)
	list.Items = slices.DeleteFunc(list.Items, o.suppressed)
	if o.output != "table" {
		if err := cli.WriteDocument(env.Stdout, o.output, list); err != nil {
			return err
		}
	} else {
		printFindings(env, list.Items, found-len(list.Items), ofStore)
	}
	worst := slices.Index(finding.Severities, o.threshold)
	if slices.ContainsFunc(list.Items, func(f finding.Finding) bool { return slices.Index(finding.Severities, f.Severity) <= worst }) {
		return errFindings
	}
	return nil
}

// leaveOut removes from a list the findings that exist already without the files (is), unless
// they are about the files' own objects, or about a source that is not read: what such a source has
// may concern the files. It returns how many it removed.
func leaveOut(list *finding.List, is []finding.Finding, fileKeys map[config.Key]bool) int {
	type oddity struct {
		object      finding.Object
		code, field string
	}
	now := map[oddity]bool{}
	for _, f := range is {
		now[oddity{f.Object, f.Code, f.Field}] = true
	}
	all := len(list.Items)
	list.Items = slices.DeleteFunc(list.Items, func(f finding.Finding) bool {
		return !fileKeys[keyOf(f.Object)] && f.Object.Kind != finding.SourceKind && now[oddity{f.Object, f.Code, f.Field}]
	})
	return all - len(list.Items)
}

// operations returns the operations that would apply the files, and the keys of their objects;
// nothing without -f.
func (o *analyzeOptions) operations(ctx context.Context, env *environment) ([]batch.Operation, map[config.Key]bool, error) {
	m, operations, err := o.files.asIfApplied(ctx, env, "analyzed")
	if m == nil {
		return nil, nil, err
	}
	own := map[config.Key]bool{}
	for _, d := range m.documents {
		own[keyOf(finding.Object{Kind: d.Config.GroupVersionKind.Kind, Namespace: d.Config.Namespace, Name: d.Config.Name})] = true
	}
	return operations, own, err
}

func (o *analyzeOptions) suppressed(f finding.Finding) bool {
	object := keyOf(f.Object).String()
	return slices.ContainsFunc(o.suppress, func(s string) bool {
		code, pattern, _ := strings.Cut(s, "=")
		matches, _ := path.Match(strings.ToLower(pattern), object)
		matches = matches || f.Object.Kind == finding.SourceKind && pattern == object // a name of a source has slashes, too
		return matches && (code == f.Code || slices.Contains(strings.Split(f.Istio, ", "), code))
	})
}

// isCode says whether a code is one of findings: Portolan's own, or one of Istio's analysis.
func isCode(code string) bool {
	for k := range verdict.Kinds() {
		if code == string(k.Code) || slices.Contains(strings.Split(k.Istio, ", "), code) {
			return true
		}
	}
	return false
}

func keyOf(o finding.Object) config.Key {
	return config.Key{Kind: config.GroupVersionKind{Kind: o.Kind}, Namespace: o.Namespace, Name: o.Name}
}

// printFindings prints a line for each finding, the worst first. Then it prints how many there
// are, how many are suppressed, and how many are about stored objects that the files do not
// touch.
func printFindings(env *environment, all []finding.Finding, suppressed, ofStore int) {
	counts := map[string]int{}
	slices.SortStableFunc(all, func(a, b finding.Finding) int {
		return slices.Index(finding.Severities, a.Severity) - slices.Index(finding.Severities, b.Severity)
	})
	for _, f := range all {
		counts[f.Severity]++
		fmt.Fprintf(env.Stdout, "%s [%s] %s: %s\n", f.Severity, f.Codes(), cli.Plain(keyOf(f.Object).String()), cli.Plain(f.Text()))
	}
	var also string
	if suppressed > 0 {
		also = fmt.Sprintf(" (%d suppressed)", suppressed)
	}
	if ofStore > 0 {
		also += fmt.Sprintf(" Left out: %d of stored objects that the files do not concern; see portolan analyze.", ofStore)
	}
	if len(all) == 0 {
		fmt.Fprintf(env.Stderr, "Nothing is odd.%s\n", also)
		return
	}
	var parts []string
	for _, s := range finding.Severities {
		if counts[s] > 0 {
			parts = append(parts, severityCount(counts[s], s))
		}
	}
	fmt.Fprintf(env.Stderr, "Findings: %s.%s\n", strings.Join(parts, ", "), also)
}

// severityCount formats a number of findings of a severity. "info" has no plural.
func severityCount(n int, severity string) string {
	if severity == verdict.Info.String() {
		return fmt.Sprintf("%d %s", n, severity)
	}
	return cli.CountOf(n, severity)
}

// errFindings is the error of an analysis with findings, which were printed.
var errFindings = exit.Quietly(exit.Findings, "there are findings")
