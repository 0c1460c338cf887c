package command

import (
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
)

// settingsOf returns the flags of a command with their values, by name. Those that name a file
// with a secret have its name.
func settingsOf(flags *pflag.FlagSet) []maintenance.Setting {
	var out []maintenance.Setting
	sorted := pflag.NewFlagSet("sorted", pflag.ContinueOnError) // a new set visits by name
	sorted.AddFlagSet(flags)
	sorted.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			out = append(out, maintenance.Setting{Name: f.Name, Value: f.Value.String(), Given: f.Changed})
		}
	})
	return out
}
