package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

// listing describes how to list the objects of a kind.
type listing struct {
	kind config.GroupVersionKind
	head []string
	rows func(*unstructured.Unstructured) ([][]string, error)
	none string // printed if there are none
}

// list prints the objects of a namespace, or of all, as a table or in the output format.
func (env *environment) list(ctx context.Context, api *client.Client, namespace, output string, l listing) error {
	list, err := api.List(ctx, client.Resource(env.schemas.Kind(l.kind)), namespace, client.Selection{})
	if err != nil {
		return err
	}
	if output != "" {
		return writeDocument(env.stdout, output, list)
	}
	table := [][]string{l.head}
	for i := range list.Items {
		rows, err := l.rows(&list.Items[i])
		if err != nil {
			return err
		}
		table = append(table, rows...)
	}
	if len(table) == 1 {
		_, err := fmt.Fprintln(env.stderr, l.none)
		return err
	}
	return writeTable(env.stdout, table)
}
