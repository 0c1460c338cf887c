package objects

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// editorNames are the variables that name the user's editor; the first that is set counts.
var editorNames = []string{"PORTOLAN_EDITOR", "VISUAL", "EDITOR"}

// editor is the user's editor, as a shell takes it: a program, maybe with arguments.
type editor string

func newEditor() editor {
	named := cli.MapSlice(editorNames, os.Getenv)
	return editor(cmp.Or(append(named, "vi")...))
}

// open has the user edit a file, and returns when the editor is closed.
func (e editor) open(ctx context.Context, env *environment, file string) error {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", string(e)+` "$@"`, "sh", file) // the user's own command line, as git runs it
	c.Stdin, c.Stdout, c.Stderr = env.Stdin, env.Stdout, env.Stderr
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return exit.With(exit.Failure, fmt.Errorf("the editor %q failed: %w (PORTOLAN_EDITOR, VISUAL or EDITOR say which one to use)", string(e), err))
	}
	return nil
}
