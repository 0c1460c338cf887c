package cli

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Listing describes how to list the objects of a kind.
type Listing struct {
	Kind config.GroupVersionKind
	Head []string
	Rows func(*unstructured.Unstructured) ([][]string, error)
	None string // printed if there are none
}

// List prints the objects of a namespace, or of all, as a table or in the output format.
func (env *Environment) List(ctx context.Context, api *client.Client, namespace, output string, l Listing) error {
	list, err := api.List(ctx, client.Resource(env.Schemas.Kind(l.Kind)), namespace, client.Selection{})
	if err != nil {
		return err
	}
	if output != "" {
		return WriteDocument(env.Stdout, output, list)
	}
	table := [][]string{l.Head}
	for i := range list.Items {
		rows, err := l.Rows(&list.Items[i])
		if err != nil {
			return err
		}
		table = append(table, rows...)
	}
	if len(table) == 1 {
		_, err := fmt.Fprintln(env.Stderr, l.None)
		return err
	}
	return WriteTable(env.Stdout, table)
}
