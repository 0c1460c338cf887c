package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// completionTimeout bounds how long a shell waits for names.
const completionTimeout = time.Second

// offer calls the server for a shell's completion. It gives up soon, and never prints an
// error.
func (e *environment) offer(ctx context.Context, do func(context.Context, *client.Client) error) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	silent := *e
	silent.patience = 0
	_ = silent.call(ctx, do)
}

// completeFlags completes the values of flags that many commands have: namespaces and
// revisions.
func completeFlags(env *environment, c *cobra.Command) {
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Name == "namespace":
			_ = c.RegisterFlagCompletionFunc(f.Name, completeNamespaces(env))
		case f.Value.Type() == "int64" && slices.Contains([]string{"revision", "min-revision", "to-revision", "from", "to"}, f.Name):
			_ = c.RegisterFlagCompletionFunc(f.Name, completeRevisions(env))
		}
	})
	for _, sub := range c.Commands() {
		completeFlags(env, sub)
	}
}

func completeNamespaces(env *environment) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		env.offer(c.Context(), func(ctx context.Context, c *client.Client) (err error) {
			names, err = c.Namespaces(ctx)
			return err
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// offeredRevisions is how many revisions a shell offers, newest first.
const offeredRevisions = 20

// completeRevisions offers the revisions of the newest changes: of the object on the command
// line, else of the namespace, else of all.
func completeRevisions(env *environment) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		q := record.Query{Namespace: namespaceGiven(c), Limit: offeredRevisions, Bare: true}
		if len(args) > 0 {
			if s, err := selectObjects(env, args, q.Namespace); err == nil && len(s.keys) == 1 {
				key := s.keys[0]
				q.Group, q.Kind, q.Namespace, q.Name = key.Kind.Group, key.Kind.Kind, key.Namespace, key.Name
			}
		}
		env.offer(c.Context(), func(ctx context.Context, c *client.Client) error {
			list, err := c.Records(ctx, q)
			if err != nil {
				return err
			}
			for _, r := range list.Items {
				about := fmt.Sprintf("%s ago: %s %s", age(env.now(), r.Time), changesOf(r), plain(r.Message))
				out = append(out, cobra.CompletionWithDesc(r.Revision, strings.TrimSpace(about)))
			}
			return nil
		})
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeProxies offers the names of the connected proxies, for one argument or a flag.
func completeProxies(env *environment) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespace := ""
		if c.Flags().Changed("namespace") {
			namespace, _ = c.Flags().GetString("namespace")
		}
		env.offer(c.Context(), func(ctx context.Context, c *client.Client) error {
			var list admin.ProxyList
			if err := c.JSON(ctx, proxiesPath(namespace), &list); err != nil {
				return err
			}
			for _, p := range list.Items {
				out = append(out, cobra.CompletionWithDesc(p.Name, p.Type+" of namespace "+p.Namespace))
			}
			return nil
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeKinds offers kinds.
func completeKinds(env *environment) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		for _, kind := range env.schemas.All() {
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
		kind := env.schemas.Named(name)
		if kind == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := env.namesOf(c.Context(), kind, env.namespaceOf(kind, namespace), args)
		if qualified {
			names = mapSlice(names, func(n cobra.Completion) cobra.Completion { return place + "/" + n })
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
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
	e.offer(ctx, func(ctx context.Context, c *client.Client) error {
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
