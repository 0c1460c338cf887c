package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

// fileWrite writes the objects of files, where there are none yet, or where there are some.
type fileWrite struct {
	writeFlags
	files fileFlags
	verb  batch.Verb
	done  string // what becomes of the objects, such as "created"
}

func newCreateCommand(env *environment) *cobra.Command {
	o := fileWrite{verb: batch.Create, done: "created"}
	c := &cobra.Command{
		Use:   "create (-f FILE|DIR|URL|- | -k DIR)",
		Short: "Create objects that do not exist yet, all of them as one change",
		Long: `Create objects: all those of the files as one change. If one of them exists, or has a
fault, nothing is created; portolan apply creates or changes.

Certificates and other secrets are stored by portolan secret tls and portolan secret
generic, which make a Secret of files.

The exit code is 1 where an object exists, 65 where one has a fault.` + storesHelp + waitHelp,
		Example: `  portolan create -f shop.yaml
  portolan create -f shop/ -n shop -m "the shop opens" --wait
  portolan create -f shop/ --dry-run=server
  portolan secret tls shop-cert -n ingress --cert fullchain.pem --key privkey.pem`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "secret" {
				return errors.New("create secret: portolan secret tls and portolan secret generic make a Secret of files")
			}
			return filesOnly(c, args)
		},
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c, env) },
	}
	o.register(c)
	return c
}

func newReplaceCommand(env *environment) *cobra.Command {
	o := fileWrite{verb: batch.Update, done: "replaced"}
	c := &cobra.Command{
		Use:   "replace (-f FILE|DIR|URL|- | -k DIR)",
		Short: "Replace objects that exist, all of them as one change",
		Long: `Replace objects by what files say: all of them as one change. If one of them does not
exist, or has a fault, nothing is replaced; portolan apply creates or changes.

A metadata.resourceVersion in a file must be that of the stored object; without one, the
last write wins.

The exit code is 1 where an object does not exist, 65 where one has a fault, and 75 where
one has changed since the resourceVersion that its file names.` + storesHelp + waitHelp,
		Example: `  portolan replace -f shop.yaml
  portolan get vs/reviews -n shop -o yaml | sed s/v1/v2/ | portolan replace -f - -m "to v2"`,
		Args: filesOnly,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c, env) },
	}
	o.register(c)
	return c
}

func (o *fileWrite) register(c *cobra.Command) {
	o.writeFlags.register(c)
	o.files.register(c, c.Name())
}

func (o *fileWrite) run(c *cobra.Command, env *environment) error {
	if o.files.none() {
		return exit.With(exit.Usage, fmt.Errorf("name what to %s: -f FILE, -f DIR, -f URL, -k DIR, or -f - for stdin", c.Name()))
	}
	if err := o.check(c); err != nil {
		return err
	}
	m, err := o.files.read(c.Context(), env)
	if err != nil {
		return err
	}
	m.validate()
	if err := m.err(o.done); err != nil {
		return err
	}
	if o.dry.mode == dryRunClient {
		return o.reportValid(env, m)
	}
	operations, err := m.operations(o.verb)
	if err != nil {
		return err
	}
	var documents []config.Document
	var result *batch.Result
	err = env.Call(c.Context(), func(ctx context.Context, api *client.Client) (err error) {
		documents, result, err = o.deliver(ctx, env, api, change{m.documents, operations}, o.done, o.why.about)
		return err
	})
	if err != nil {
		return err
	}
	if err := o.report(env, documents, result, nil); err != nil {
		return err
	}
	return o.await(c.Context(), env, result)
}
