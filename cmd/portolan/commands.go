package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/access"
	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/debug"
	"github.com/portolan-mesh/portolan/cmd/portolan/objects"
	"github.com/portolan-mesh/portolan/cmd/portolan/proxies"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/command"
	"github.com/portolan-mesh/portolan/cmd/portolan/store"
)

func whole() cli.Program {
	return cli.Program{Version: version, Commands: commands, Examples: examples, Revisions: objects.CompleteRevisions}
}

// commands returns those of all groups. Package cli adds completion, help and version.
func commands(env *cli.Environment) []*cobra.Command {
	return slices.Concat(
		[]*cobra.Command{command.New(console(env))},
		objects.Commands(env), proxies.Commands(env), store.Commands(env), access.Commands(env), debug.Commands(env),
	)
}

// console is what the command serve gets from the command line.
func console(env *cli.Environment) command.Console {
	return command.Console{
		Stderr: env.Stderr, Version: env.Version, Bearer: env.Credentials.Bearer,
		CA: func() string { return env.Files.CA }, Agent: env.Agent,
	}
}
