package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// namespacesNamed returns the namespaces that arguments name; none if they name anything else.
func namespacesNamed(env *environment, args []string) []string {
	if len(args) == 0 {
		return nil
	}
	selected, err := selectObjects(env.withSide(), args, "")
	if err != nil || slices.ContainsFunc(selected.kinds, func(k *schema.Schema) bool { return k.GroupVersionKind != schema.Namespace }) {
		return nil
	}
	return cli.MapSlice(selected.keys, func(key config.Key) string { return key.Name })
}

// deleteNamespaces deletes namespaces, one after the other, each with all that is in it.
func (o *deleteOptions) deleteNamespaces(ctx context.Context, env *environment, names []string) error {
	if o.dry.mode == dryRunClient || o.wait {
		return exit.With(exit.Usage, errors.New("a namespace is deleted with what is in it, which the server alone knows: leave --dry-run=client and --wait out"))
	}
	for _, name := range names {
		contents, found, err := o.sendNamespace(ctx, env, name, true)
		switch {
		case err != nil:
			return err
		case !found:
			continue
		}
		if o.dry.mode == dryRunNone && !o.yes {
			fmt.Fprintf(env.Stderr, "namespace/%s: %s\n", name, strings.Join(contents, "; "))
			if !env.Terminal {
				return exit.With(exit.Usage, errors.New("nothing was deleted: it goes with all that is in it, and there is no terminal to ask on: add --yes"))
			}
			if err := env.Confirm(ctx, "Delete it with all that is in it?", "nothing was deleted"); err != nil {
				return err
			}
		}
		end := " (dry run)"
		if o.dry.mode == dryRunNone {
			if contents, _, err = o.sendNamespace(ctx, env, name, false); err != nil {
				return err
			}
			end = ""
		}
		if o.output == "name" {
			fmt.Fprintf(env.Stdout, "namespace/%s\n", name)
			continue
		}
		fmt.Fprintf(env.Stdout, "namespace/%s  deleted%s  %s\n", name, end, strings.Join(contents, "; "))
	}
	return nil
}

// sendNamespace has the server delete a namespace, or try to. It returns what is in it, or false if
// it does not exist and that is no error.
func (o *deleteOptions) sendNamespace(ctx context.Context, env *environment, name string, try bool) (contents []string, found bool, err error) {
	query := url.Values{}
	if try {
		query.Set("dryRun", metav1.DryRunAll)
	}
	if text := string(o.why); text != "" {
		query.Set("message", text)
	}
	in := call.Request{Method: http.MethodDelete, Path: "/api/v1/namespaces/" + url.PathEscape(name), Query: query}
	err = env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		contents, err = c.Do(ctx, in, nil)
		return err
	})
	if apierrors.IsNotFound(err) && o.ignoreNotFound {
		return nil, false, nil
	}
	return contents, true, err
}
