package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
)

func newDescribeCommand(env *environment) *cobra.Command {
	outputs := []string{"table", "json", "yaml"}
	var output, namespace string
	c := &cobra.Command{
		Use:   "describe (KIND/NAME | KIND NAME)",
		Short: "Show what became of an object, what it refers to, and what refers to it",
		Long: `Show what became of an object: the conditions of its status, how many proxies have
taken its last change and which have not, what its fields name, and which objects
name it. What is named and not there is marked. portolan get -o yaml shows the
object itself, portolan history who changed it.

References are those of VirtualServices, DestinationRules and ServiceEntries, by
name alone: an object may still not be exported to another.`,
		Example: `  portolan describe vs/reviews -n shop
  portolan describe gateway edge -n shop -o json
  portolan describe service reviews.shop.internal`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeObjects(env),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name what to describe: KIND/NAME, or service HOST\nSee 'portolan describe --help'")}
			}
			if err := oneOf("-o", output, outputs...); err != nil {
				return err
			}
			key, kind, err := oneObject(args, namespace, "describe")
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
				return writeDocument(env.stdout, output, d)
			}
			return env.printDescription(key, d)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", `namespace of the object (default "default")`)
	c.Flags().StringVarP(&output, "output", "o", "table", "form of the output: "+alternatives(outputs))
	completeOutput(c, outputs...)
	c.AddCommand(newDescribeServiceCommand(env))
	return c
}

// description is all that describe tells of an object. Its JSON form is an API.
type description struct {
	metav1.TypeMeta `json:",inline"`
	Object          *unstructured.Unstructured `json:"object"`
	Propagation     admin.Propagation          `json:"propagation"`
	References      admin.References           `json:"references"`
}

// describe reads what a server has of an object.
func (e *environment) describe(ctx context.Context, key config.Key, kind *schema.Schema) (d description, err error) {
	d.TypeMeta = metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "Description"}
	query := "?" + changeOf(key).Encode()
	err = e.call(ctx, func(ctx context.Context, c *client.Client) error {
		if d.Object, err = c.Get(ctx, client.Resource(kind), key.Namespace, key.Name); err != nil {
			return err
		}
		if err := c.JSON(ctx, admin.PropagationPath+query, &d.Propagation); err != nil {
			return err
		}
		return c.JSON(ctx, admin.ReferencesPath+query, &d.References)
	})
	return d, err
}

func (e *environment) printDescription(key config.Key, d description) error {
	created := d.Object.GetCreationTimestamp()
	fmt.Fprintf(e.stdout, "%s  changed at rev %d  created %s ago\n\n", key, d.Propagation.Revision, age(e.now(), created.Time))
	if rows := conditionRows(d.Object, e.now()); len(rows) > 1 {
		if err := writeTable(e.stdout, rows); err != nil {
			return err
		}
		fmt.Fprintln(e.stdout)
	}
	fmt.Fprintln(e.stdout, distribution(d.Propagation))
	if err := e.printLaggards(d.Propagation); err != nil {
		return err
	}
	for _, one := range []struct {
		header string
		list   []admin.Reference
	}{{"REFERS TO", d.References.To}, {"REFERRED TO BY", d.References.From}} {
		if len(one.list) == 0 {
			continue
		}
		fmt.Fprintln(e.stdout)
		if err := writeTable(e.stdout, referenceRows(one.header, one.list)); err != nil {
			return err
		}
	}
	return nil
}

// conditionRows are the conditions of an object's status, below a header.
func conditionRows(object *unstructured.Unstructured, now time.Time) [][]string {
	rows := [][]string{{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		text := func(field string) string { s, _ := c[field].(string); return strings.Join(strings.Fields(s), " ") }
		since, _ := time.Parse(time.RFC3339, text("lastTransitionTime"))
		rows = append(rows, []string{text("type"), text("status"), age(now, since), text("reason"), text("message")})
	}
	return rows
}

func referenceRows(header string, list []admin.Reference) [][]string {
	rows := [][]string{{header, "FIELDS"}}
	for _, r := range list {
		row := []string{r.Object, items(r.Fields, false)}
		if r.Missing {
			row = append(row, "! there is none")
		}
		rows = append(rows, row)
	}
	return rows
}
