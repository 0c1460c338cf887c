package objects

import (
	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
)

// environment has what the commands of this group share, besides what all commands do.
type environment struct{ *cli.Environment }

// Commands returns the commands about objects.
func Commands(line *cli.Environment) []*cobra.Command {
	env := &environment{line}
	return []*cobra.Command{
		newApplyCommand(env), newDiffCommand(env), newGetCommand(env), newDescribeCommand(env), newAnalyzeCommand(env), newDeleteCommand(env),
		newEditCommand(env), newCreateCommand(env), newReplaceCommand(env), newPatchCommand(env), newLabelCommand(env), newAnnotateCommand(env),
		newWaitCommand(env), newAPIResourcesCommand(env), newExportCommand(env), newImportCommand(env), newSecretCommand(env),
		newHistoryCommand(env), newAuditCommand(env), newRollbackCommand(env), newEventsCommand(env),
	}
}

// warn prints the warnings of an answer, each once.
func (e *environment) warn(warnings []string) { e.Warn(warnings) }

// aside returns an environment that prints to stderr what is not the result of the command.
func (e *environment) aside() *environment {
	return &environment{e.With(func(e *cli.Environment) { e.Stdout = e.Stderr })}
}
