package objects

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func completeKinds(env *environment) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		for _, kind := range env.Schemas.All() {
			out = append(out, cobra.CompletionWithDesc(kind.Plural, strings.Join(kind.ShortNames, ", ")))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeObjects offers kinds. After a kind, KIND/ or KIND/NAMESPACE/ it offers the names of
// objects.
func completeObjects(env *environment) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		place, _, qualified := cutLast(word, "/")
		if len(args) == 0 && !qualified {
			return completeKinds(env)(c, args, word)
		}
		name, namespace := place, namespaceGiven(c)
		if !qualified {
			name = args[0]
		} else if kind, of, ok := strings.Cut(place, "/"); ok {
			name, namespace = kind, of
		}
		kind := env.Schemas.Named(name)
		if kind == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := env.namesOf(c.Context(), kind, env.namespaceOf(kind, namespace), args)
		if qualified {
			names = cli.MapSlice(names, func(n cobra.Completion) cobra.Completion { return place + "/" + n })
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeBeside is completeObjects for commands that take the kinds beside those of the mesh, too.
func completeBeside(env *environment) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeObjects(env.withSide())(c, args, word)
	}
}

// completeGetOutput offers the values of -o of get; a text follows some of them.
func completeGetOutput(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	name, file, given := strings.Cut(word, "=")
	if given && strings.HasSuffix(name, "-file") && file == "" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var out []cobra.Completion
	for _, f := range writtenForms {
		if word != "" && strings.HasPrefix(f.name, word) {
			out = append(out, f.name+"=")
		}
	}
	if len(out) > 0 {
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return slices.Clone(getOutputs), cobra.ShellCompDirectiveNoFileComp
}

// namespaceGiven returns the value of -n, empty if it was not given.
func namespaceGiven(c *cobra.Command) string {
	namespace, _ := c.Flags().GetString("namespace")
	return namespace
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// namesOf returns the names of objects, without those in except.
func (e *environment) namesOf(ctx context.Context, kind *schema.Schema, namespace string, except []string) []cobra.Completion {
	var names []cobra.Completion
	e.Offer(ctx, func(ctx context.Context, c *client.Client) error {
		list, err := c.List(ctx, client.Resource(kind), namespace, client.Selection{})
		if err != nil {
			return err
		}
		for _, object := range list.Items {
			if !slices.Contains(except, object.GetName()) {
				names = append(names, object.GetName())
			}
		}
		return nil
	})
	return names
}
