package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

func newDescribeCommand(env *environment) *cobra.Command {
	outputs := []string{"table", "json", "yaml"}
	var output, namespace string
	c := &cobra.Command{
		Use:   "describe (KIND/NAME | KIND NAME)",
		Short: "Show what became of an object, what it refers to, and what refers to it",
		Long: `Show what became of an object: the conditions of its status, what is odd about it
beside other objects and what to do, how many proxies have taken its last change and
which have not, what its fields name, and which objects name it. What is named and not there is marked. portolan get -o yaml shows the
object itself, portolan history who changed it. Of a WorkloadGroup it shows the proxies that are
registered in it, and which are refused and why.

Of an object that is kept beside the mesh, such as a ConfigMap or a Namespace, it shows
the labels, the content and the events.

Of an object that comes from another source than the store it shows the place there.
Proxies have taken it when they have all that there is on a server which has it so: such
a source has no revisions. Where the source has a form that is not served, it says so
first, and all else is about the form that is served.

References are those of VirtualServices, DestinationRules and ServiceEntries, by
name alone: an object may still not be exported to another.`,
		Example: `  portolan describe vs/reviews -n shop
  portolan describe gateway edge -n shop -o json
  portolan describe configmap/settings -n shop
  portolan describe service reviews.shop.internal`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeBeside(env),
		RunE: func(c *cobra.Command, args []string) error {
			env := env.withSide()
			if len(args) == 0 {
				return exit.With(exit.Usage, errors.New("name what to describe: KIND/NAME, or service HOST\nSee 'portolan describe --help'"))
			}
			key, kind, err := oneObject(env, args, namespace, "describe")
			if err != nil {
				return err
			}
			d, err := env.describe(c.Context(), key, kind)
			switch {
			case apierrors.IsNotFound(err):
				return notFound(key, kind)
			case err != nil:
				return err
			case output != "table":
				return cli.WriteDocument(env.Stdout, output, d)
			}
			return env.printDescription(key, d)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", `namespace of the object (default $PORTOLAN_NAMESPACE, else "default")`)
	cli.RegisterOutput(c, &output, outputs...)
	c.AddCommand(newDescribeServiceCommand(env), newDescribeMeshCommand(env))
	return c
}

// Description is all that describe tells of an object. Its JSON form is an API.
type Description struct {
	metav1.TypeMeta `json:",inline"`
	Object          *unstructured.Unstructured `json:"object"`
	// Source is the source that the object comes from, with its place there, unless that is
	// the store. The Propagation of such an object counts only the proxies of servers that
	// have this version of it, and covers everything that these proxies should have.
	Source      string             `json:"source,omitempty"`
	Findings    []finding.Finding  `json:"findings,omitempty"`
	Propagation *admin.Propagation `json:"propagation,omitempty"`
	References  admin.References   `json:"references"`
	// Registered are the proxies that are registered in a WorkloadGroup.
	Registered []registered `json:"registered,omitempty"`
	// Events are those of an object beside the mesh, the newest last.
	Events []*unstructured.Unstructured `json:"events,omitempty"`
}

// describe reads all that a server knows of an object.
func (e *environment) describe(ctx context.Context, key config.Key, kind *schema.Schema) (d Description, err error) {
	d.TypeMeta = metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "Description"}
	query := "?" + changeOf(key).Encode()
	err = e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		if d.Object, err = c.Warning(e.warn).Get(ctx, client.Resource(kind), key.Namespace, key.Name); err != nil {
			return err
		}
		if cli.BesideMesh(key.Kind) {
			d.Events, err = e.eventsOf(ctx, c, key)
			return err
		}
		d.Source, d.Propagation = d.Object.GetAnnotations()[config.SourceAnnotation], &admin.Propagation{}
		if err := c.JSON(ctx, admin.PropagationPath+query, d.Propagation); err != nil {
			return err
		}
		if err := c.JSON(ctx, admin.ReferencesPath+query, &d.References); err != nil {
			return err
		}
		if d.Findings, err = findingsOf(ctx, c, key); err == nil && key.Kind == schema.WorkloadGroup {
			d.Registered, err = e.registeredIn(ctx, c, key)
		}
		return err
	})
	return d, err
}

// findingsOf returns the findings about an object; nil if the server has no findings.
func findingsOf(ctx context.Context, c *client.Client, key config.Key) ([]finding.Finding, error) {
	list, err := c.Findings(ctx, key.Namespace, nil)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(append([]finding.Finding{}, list.Items...), func(f finding.Finding) bool {
		return f.Object.Kind != key.Kind.Kind || f.Object.Namespace != key.Namespace || f.Object.Name != key.Name
	}), nil
}

func (e *environment) printDescription(key config.Key, d Description) error {
	fmt.Fprintln(e.Stdout, strings.Join(slices.Concat([]string{key.String()}, e.origin(d)), "  "))
	if cli.BesideMesh(key.Kind) {
		return e.printBeside(d)
	}
	for _, rows := range [][][]string{keptRows(d.Propagation), conditionRows(d.Object, d.Findings, e.Now()), findingRows(d.Findings)} {
		if err := e.PrintSection(rows); err != nil {
			return err
		}
	}
	if d.Propagation != nil {
		fmt.Fprintf(e.Stdout, "\n%s\n", distribution(*d.Propagation))
		if err := e.printLaggards(*d.Propagation); err != nil {
			return err
		}
	}
	if err := e.PrintSection(registeredRows(d.Registered, e.Now())); err != nil {
		return err
	}
	if err := e.PrintSection(referenceRows("REFERS TO", d.References.To)); err != nil {
		return err
	}
	return e.PrintSection(referenceRows("REFERRED TO BY", d.References.From))
}

// origin says where an object comes from, and when it was created and changed.
func (e *environment) origin(d Description) (out []string) {
	if d.Source != "" {
		out = append(out, "from "+cli.Plain(d.Source))
	}
	if isDryRun(d.Object) {
		out = append(out, "dry run: refuses nothing")
	}
	if d.Source == "" && d.Propagation != nil {
		out = append(out, fmt.Sprintf("changed at rev %d", d.Propagation.Revision))
	}
	if at := cli.Age(e.Now(), created(d.Object)); at != "" {
		out = append(out, "created "+at+" ago")
	}
	return out
}

// keptRows returns why an object is not served in the form that its source has, below a header.
func keptRows(p *admin.Propagation) [][]string {
	rows := [][]string{{"NOT SERVED AS IT STANDS IN ITS SOURCE, BUT AS IT WAS BEFORE: ALL BELOW IS ABOUT THAT"}}
	if p != nil {
		for _, fault := range p.Faults {
			rows = append(rows, []string{fault})
		}
	}
	return rows
}

// conditionRows returns the conditions of an object's status, below a header. Conditions that quote
// findings refer to them instead, or say that the server does not find them any more: the leader writes
// conditions some seconds later. Without findings (nil) nothing is known of them.
func conditionRows(object *unstructured.Unstructured, findings []finding.Finding, now time.Time) [][]string {
	rows := [][]string{{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for _, c := range conditionsOf(object) {
		message := c.text("message")
		switch reason := c.text("reason"); {
		case findings == nil || !strings.HasPrefix(reason, "PTL"):
		case slices.ContainsFunc(findings, func(f finding.Finding) bool { return f.Code == reason }):
			message = "see FINDING"
		default:
			message = "is not so any more: the condition follows in some seconds"
		}
		since, _ := time.Parse(time.RFC3339, c.text("lastTransitionTime"))
		rows = append(rows, []string{c.text("type"), c.text("status"), cli.Age(now, since), c.text("reason"), message})
	}
	return rows
}

// findingRows returns findings with their remedies, below a header.
func findingRows(all []finding.Finding) [][]string {
	rows := [][]string{{"FINDING", "SEVERITY", "FIELD", "MESSAGE", "REMEDY"}}
	for _, f := range all {
		rows = append(rows, []string{f.Codes(), f.Severity, cli.Plain(f.Field), cli.Plain(f.Message), cli.Plain(f.Remedy)})
	}
	return rows
}

func referenceRows(header string, list []admin.Reference) [][]string {
	rows := [][]string{{header, "FIELDS"}}
	for _, r := range list {
		row := []string{r.Object, cli.FormatList(r.Fields, false)}
		if r.Missing {
			row = append(row, "! there is none")
		}
		rows = append(rows, row)
	}
	return rows
}
