package objects

import (
	"context"
	"fmt"
	"slices"

	yamlv2 "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// involving selects the events of an object.
func involving(key config.Key) string {
	return fields.AndSelectors(fields.OneTermEqualSelector("involvedObject.kind", key.Kind.Kind), fields.OneTermEqualSelector("involvedObject.name", key.Name)).String()
}

// eventsOf returns the events of an object, the newest last.
func (e *environment) eventsOf(ctx context.Context, c *client.Client, key config.Key) ([]*unstructured.Unstructured, error) {
	list, err := c.List(ctx, client.Resource(schema.Side().Kind(schema.Event)), key.Namespace, client.Selection{Fields: involving(key)})
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	slices.SortFunc(out, byTime)
	return out, nil
}

// printBeside prints the labels, the annotations and the content of an object, as YAML, its status
// and its events.
func (e *environment) printBeside(d Description) error {
	shown := map[string]any{}
	for _, field := range []string{"labels", "annotations"} {
		if values, ok, _ := unstructured.NestedMap(d.Object.Object, "metadata", field); ok {
			shown[field] = values
		}
	}
	for field, value := range d.Object.Object {
		empty, _ := value.(map[string]any)
		if field != "apiVersion" && field != "kind" && field != "metadata" && (empty == nil || len(empty) > 0) {
			shown[field] = value
		}
	}
	if len(shown) > 0 {
		text, err := yamlv2.Marshal(shown)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "\n%s", text)
	}
	if len(d.Events) == 0 {
		return nil
	}
	var o getOptions
	rows, err := o.rows(e, objectsOfKind{schema.Side().Kind(schema.Event), d.Events}, false)
	if err != nil {
		return err
	}
	return e.PrintSection(rows)
}
