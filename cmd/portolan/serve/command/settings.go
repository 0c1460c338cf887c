package command

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/settings"
)

// settingsFile holds the flags of the file of settings.
type settingsFile struct {
	name  string
	print bool
}

func (o *settingsFile) register(f *pflag.FlagSet) {
	f.StringVar(&o.name, "config", "", "file with settings in YAML: each flag is a field by its name, without dashes before it; flags that repeat are lists. A flag on the command line goes before the file")
	f.BoolVar(&o.print, "print-config", false, "print all settings as such a file, validated, and end; those that nobody has given are comments")
}

// The flags of all commands that serve uses, to join a store.
var sharedFlags = []string{"token-file", "ca"}

// fields returns what a file of settings may have: the flags of serve, and those of all commands that
// it uses.
func (o *settingsFile) fields(c *cobra.Command) settings.Fields {
	out := settings.Fields{Flags: pflag.NewFlagSet("settings", pflag.ContinueOnError), Refused: map[string]string{
		"token": "is a secret: put it into a file, and name that with token-file",
	}, Shared: "To join a store: flags of all commands"}
	out.Flags.SortFlags = false
	c.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if slices.Contains([]string{"config", "print-config", "help"}, flag.Name) {
			out.Refused[flag.Name] = "is for the command line alone: leave it out"
			return
		}
		out.Flags.AddFlag(flag)
	})
	for _, name := range sharedFlags {
		if flag := c.InheritedFlags().Lookup(name); flag != nil {
			out.Flags.AddFlag(flag)
		}
	}
	return out
}

// read sets flags as the file says, if there is one.
func (o *settingsFile) read(fields settings.Fields, given func(flag string) bool) (settings.Origins, error) {
	if !given("config") {
		return nil, nil
	}
	if o.name == "" {
		return nil, exit.With(exit.Usage, errors.New("--config: is empty: name a file, or leave it out"))
	}
	origins, err := fields.Read(o.name)
	if err != nil && origins == nil {
		return nil, exit.With(exit.Data, fmt.Errorf("--config: %w", err))
	}
	return origins, err
}

// load sets flags by the file of settings, and writes the settings as such a file. It reports all
// faults at once, those of the file with their lines.
func (o *serveFlags) load(fields settings.Fields, given func(flag string) bool, printed io.Writer) error {
	origins, err := o.settings.read(fields, given)
	if err != nil && origins == nil {
		return err // the file cannot be read at all
	}
	if err := fields.Write(printed); err != nil {
		return err
	}
	var faults *multierror.Error
	code := exit.Usage
	if err != nil {
		faults, code = multierror.Append(faults, err), exit.Data
	}
	o.validate(given, func(flag, format string, args ...any) {
		name := "--" + flag
		if place, ok := origins[flag]; ok {
			name, code = place+": "+flag, exit.Data
		}
		faults = multierror.Append(faults, fmt.Errorf("%s: %w", name, fmt.Errorf(format, args...)))
	})
	if err := faults.ErrorOrNil(); err != nil {
		return exit.With(code, err)
	}
	return nil
}

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
