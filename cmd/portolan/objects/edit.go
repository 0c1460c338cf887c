package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
)

type editOptions struct{ rewrite }

func newEditCommand(env *environment) *cobra.Command {
	o := editOptions{rewrite{done: "edited"}}
	c := &cobra.Command{
		Use:   "edit (KIND/NAME... | KIND NAME... | KIND --all | KIND -l LABELS | -f FILE)",
		Short: "Change objects in an editor, all of them as one change",
		Long: `Open objects as YAML in an editor, and write what has changed when it is closed: all of
it as one change. PORTOLAN_EDITOR, VISUAL or EDITOR is the editor, the first that is set;
else vi. An object of another source than the store, such as a cluster, is changed there.
A file that is closed unchanged or empty changes nothing. An object that is
removed from the file stays as it is.

Where the text or the change has a fault, the editor opens again, with what was typed and
the fault at the top. Close it without a change to give up: the text is kept in a file,
which the error names.

If somebody has changed an object meanwhile, the editor opens again with both changes in
it, merged field by field. Where both have changed the same, the lines are marked as diff3
does: <<<<<<< yours, ||||||| as it was opened, ======= as it is stored >>>>>>>. Save what is
to be written.

Without a terminal the editor opens at most 10 times, as for a script.

The exit code is 0 also where nothing was changed, 1 where an object does not exist or the
editor fails, 65 where the change has a fault, and 75 where others change the object again
and again.` + waitHelp,
		Example: `  portolan edit vs/reviews -n shop
  portolan edit vs/reviews dr/reviews -n shop -m "v3 gets a tenth" --wait
  PORTOLAN_EDITOR="code --wait" portolan edit se -l app=reviews -n shop
  portolan edit vs/reviews -n shop --dry-run=server`,
		ValidArgsFunction: completeBeside(env),
		RunE: func(c *cobra.Command, args []string) error {
			env := env.withSide()
			selected, err := o.choose(c.Context(), env, args, "edit")
			if err = cmp.Or(err, o.check(c)); err != nil {
				return err
			}
			return o.run(c.Context(), env, selected)
		},
	}
	o.register(c)
	return c
}

// editTries is how often the editor opens where there is no terminal.
const editTries = 10

func (o *editOptions) run(ctx context.Context, env *environment, selected selection) error {
	all, err := o.among.read(ctx, env, selected, o.files.namespace, "edited")
	if err != nil || len(all) == 0 {
		return err
	}
	if err := onlyOfStore(all, o.done); err != nil {
		return err
	}
	s, err := newEditSession(all)
	if err != nil {
		return err
	}
	defer s.close()
	for try := 1; ; try++ {
		if !env.Terminal && try > editTries {
			return s.keep(env, cmp.Or(s.problem, exit.With(exit.Conflict, errors.New("nothing was edited: somebody else changes it again and again"))))
		}
		done, err := o.once(ctx, env, s)
		if done || err != nil {
			return err
		}
	}
}

// once opens the editor, and writes what it made. It returns false if the editor has to open again.
func (o *editOptions) once(ctx context.Context, env *environment, s *editSession) (done bool, err error) {
	if err := s.open(ctx, env); err != nil {
		return true, s.keep(env, fmt.Errorf("nothing was edited: %w", err))
	}
	switch {
	case s.isEmpty(), s.isUnchanged() && s.problem == nil && !s.merged:
		return true, s.cancel(env)
	case s.isUnchanged() && s.problem != nil:
		return true, s.keep(env, s.problem)
	}
	wanted, faults := s.read(env)
	if faults != nil {
		s.again(faults)
		return false, nil
	}
	if len(wanted.documents) == 0 {
		return true, s.cancel(env)
	}
	return o.write(ctx, env, s, wanted)
}

// write writes the change. On a conflict it merges; that it need not ask the user about if only
// what servers report has changed.
func (o *editOptions) write(ctx context.Context, env *environment, s *editSession, wanted change) (done bool, err error) {
	for attempt := 1; ; attempt++ {
		var result *batch.Result
		err = env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
			result, err = o.send(ctx, env, c, o.why.about(wanted.operations), cli.CountOf(len(wanted.operations), "object"))
			return err
		})
		switch exit.Of(err) {
		case exit.OK:
			if err := o.report(env, wanted.documents, result, nil); err != nil {
				return true, err
			}
			return true, o.await(ctx, env, result)
		case exit.Data:
			s.again(func(lines int) error { return cli.Refused(err, o.done, shifted(wanted.documents, lines)) })
			return false, nil
		case exit.Conflict:
		default:
			return true, s.keep(env, cli.Refused(err, o.done, wanted.documents))
		}
		refused := cli.Refused(err, o.done, wanted.documents)
		changed, err := s.merge(ctx, env, wanted)
		switch {
		case err != nil:
			return true, s.keep(env, err)
		case changed:
			return false, nil
		case attempt == rewriteAttempts:
			return true, s.keep(env, refused)
		}
		if wanted, err = s.anew(wanted); err != nil {
			return true, s.keep(env, err)
		}
	}
}
