package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

const waitForHelp = `

--for waits for the objects themselves instead, all of those named:
  condition=TYPE[=STATUS]   a condition in the status is True, or STATUS
  jsonpath='{PATH}'=VALUE   a field has this value; without =VALUE, it has any
  create                    the object exists
  delete                    the object does not exist
It prints a line for each object. The exit code is 2 if that is not so within --timeout,
and 1 where an object does not exist, whose condition or field is waited for.`

// waitFor waits until objects are as --for says.
type waitFor struct {
	among among
	text  string
}

func (w *waitFor) register(c *cobra.Command) {
	w.among.register(c, "wait for")
	c.Flags().StringVar(&w.text, "for", "", "wait for the objects themselves: condition=TYPE[=STATUS], jsonpath='{PATH}'=VALUE, create or delete")
	_ = c.RegisterFlagCompletionFunc("for", completeFor)
}

// completeFor offers the values of --for; a text follows some of them.
func completeFor(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if strings.Contains(word, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []cobra.Completion{"condition=", "jsonpath=", "create", "delete"}, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// wish says what to wait for.
type wish struct {
	text string // as the user wrote it
	// met says whether an object, nil for none, is as it should be, and else how it is.
	met func(object *unstructured.Unstructured) (ok bool, is string)
	// absent objects are waited for; else an object that does not exist is an error.
	absent bool
}

// parseWish reads a value of --for.
func parseWish(text string) (wish, error) {
	verb, rest, given := strings.Cut(text, "=")
	switch {
	case text == "create":
		return wish{text, func(object *unstructured.Unstructured) (bool, string) { return object != nil, "does not exist" }, true}, nil
	case text == "delete":
		return wish{text, func(object *unstructured.Unstructured) (bool, string) { return object == nil, "exists" }, true}, nil
	case verb == "condition" && given && rest != "":
		name, status, given := strings.Cut(rest, "=")
		if !given {
			status = "True"
		}
		if name != "" && status != "" {
			return wish{text: text, met: conditionIs(name, status)}, nil
		}
	case verb == "jsonpath" && given && rest != "":
		return parseFieldWish(text, rest)
	}
	return wish{}, exit.With(exit.Usage, fmt.Errorf("--for %q: use condition=TYPE, condition=TYPE=STATUS, jsonpath='{PATH}'=VALUE, create or delete", text))
}

// conditionIs says whether a condition has a status; in both, case does not count. A condition that
// is about an earlier generation of the object says nothing.
func conditionIs(name, wanted string) func(*unstructured.Unstructured) (bool, string) {
	return func(object *unstructured.Unstructured) (bool, string) {
		for _, c := range conditionsOf(object) {
			if !strings.EqualFold(c.text("type"), name) {
				continue
			}
			if seen, ok := c["observedGeneration"].(int64); ok && seen < object.GetGeneration() {
				return false, fmt.Sprintf("condition %s is about an earlier change", c.text("type"))
			}
			is := c.text("status")
			return strings.EqualFold(is, wanted), fmt.Sprintf("condition %s is %s", c.text("type"), is)
		}
		return false, "has no condition " + name
	}
}

// parseFieldWish reads {PATH}=VALUE.
func parseFieldWish(text, rest string) (wish, error) {
	path, wanted, valued := rest, "", false
	if end := strings.LastIndex(rest, "}="); end >= 0 {
		path, wanted, valued = rest[:end+1], rest[end+2:], true
	} else if !strings.HasPrefix(rest, "{") {
		path, wanted, valued = strings.Cut(rest, "=")
	}
	parsed, err := parseFieldPath(path)
	switch {
	case err != nil:
		return wish{}, exit.With(exit.Usage, fmt.Errorf("--for: %w", err))
	case valued && wanted == "":
		return wish{}, exit.With(exit.Usage, fmt.Errorf("--for %q: give the value behind the last =, or leave that out to wait for any", text))
	}
	return wish{text: text, met: func(object *unstructured.Unstructured) (bool, string) {
		values := parsed.of(object.Object)
		is := parsed.textOf(object.Object)
		return len(values) > 0 && (!valued || len(values) == 1 && is == wanted), fmt.Sprintf("%s is %s", path, is)
	}}, nil
}

func (w *waitFor) run(c *cobra.Command, env *environment, args []string, namespace string, o *waitFlags) error {
	if w.text == "" {
		return exit.With(exit.Usage, errors.New("--all, -l and -A name objects that --for waits for: add it, or name one object"))
	}
	for _, flag := range []string{"revision", "threshold", "min-proxies", "output"} {
		if c.Flags().Changed(flag) {
			return exit.With(exit.Usage, fmt.Errorf("--for waits for objects, and --%s is about proxies: leave one of them out", flag))
		}
	}
	wanted, err := parseWish(w.text)
	if err != nil {
		return err
	}
	selected, err := w.among.choose(env, args, namespace, "wait for")
	if err != nil {
		return err
	}
	keys := selected.keys
	if len(keys) == 0 {
		w.among.anySource = true
		all, err := w.among.read(c.Context(), env, selected, namespace, "waited for")
		if err != nil {
			return err
		}
		if len(all) == 0 && w.text != "delete" {
			return exit.Quietly(exit.Failure, "there are no such objects")
		}
		keys = cli.MapSlice(all, func(s storedOnly) config.Key { return s.key })
	}
	began := env.Now()
	told := env.Progress()
	defer told.Clear()
	return env.CallFor(c.Context(), 0, func(ctx context.Context, api *client.Client) error {
		for i, key := range keys {
			tell := func(is string) { told.Tell(fmt.Sprintf("%d of %d  %s: %s", i, len(keys), key, is)) }
			if err := env.waitForObject(ctx, api.Warning(env.warn), key, wanted, began.Add(o.timeout), o.timeout, tell); err != nil {
				return err
			}
			told.Clear()
			fmt.Fprintf(env.Stdout, "%s  %s\n", key, wanted.text)
		}
		return nil
	})
}

// waitForObject polls until an object is as it should be, or time is up. It tells how the object
// is.
func (e *environment) waitForObject(ctx context.Context, c *client.Client, key config.Key, wanted wish, end time.Time, timeout time.Duration, tell func(is string)) error {
	kind := e.Schemas.Kind(key.Kind)
	for pause := askFirst; ; pause = min(2*pause, askLast) {
		object, err := e.ask(ctx, c.Fresh(client.Freshness{Consistent: true}), key)
		switch {
		case apierrors.IsNotFound(err) && !wanted.absent:
			return notFound(key, kind)
		case err != nil && !apierrors.IsNotFound(err):
			return err
		}
		ok, is := wanted.met(object)
		if ok {
			return nil
		}
		tell(is)
		left := end.Sub(e.Now())
		if left <= 0 {
			return exit.With(exit.Differences, fmt.Errorf("%s: %s, and --for %s was waited for within %s", key, is, wanted.text, timeout))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(pause, left)):
		}
	}
}

// ask gets an object within --request-timeout; it returns nil with an error.
func (e *environment) ask(ctx context.Context, c *client.Client, key config.Key) (*unstructured.Unstructured, error) {
	if e.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.Timeout)
		defer cancel()
	}
	return c.Get(ctx, client.Resource(e.Schemas.Kind(key.Kind)), key.Namespace, key.Name)
}
