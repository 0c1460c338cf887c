package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/portolan-mesh/portolan/cmd/portolan/settings"
)

// parsed returns serve with a command line, below a root that has the flags of all commands, and what
// a file may have.
func parsed(t *testing.T, args ...string) settings.Fields {
	t.Helper()
	root := &cobra.Command{Use: "portolan"}
	for _, name := range sharedFlags {
		root.PersistentFlags().String(name, "", "")
	}
	serve := New(Console{Stderr: io.Discard})
	root.AddCommand(serve)
	if err := serve.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return (&settingsFile{}).fields(serve)
}

// sample returns a value of a flag that is not its default, for YAML, and as arguments.
func sample(t *testing.T, flag *pflag.Flag) (value any, args []string) {
	t.Helper()
	name := "--" + flag.Name
	switch flag.Value.Type() {
	case "string":
		return "x: 12", []string{name, "x: 12"}
	case "bool":
		return flag.DefValue != "true", []string{fmt.Sprintf("%s=%t", name, flag.DefValue != "true")}
	case "int", "int64", "uint32":
		return 4711, []string{name, "4711"}
	case "duration":
		return "47m", []string{name, "47m"}
	case "quantity":
		return "47Mi", []string{name, "47Mi"}
	case "stringSlice", "stringArray":
		return []string{"b", "a"}, []string{name, "b", name, "a"}
	}
	t.Fatalf("--%s: how is a %s written in a file?", flag.Name, flag.Value.Type())
	return nil, nil
}

// TestEachFlagIsASetting: in a file each flag does what it does on the command line, alone and with all
// others, and the command line goes before the file.
func TestEachFlagIsASetting(t *testing.T) {
	t.Parallel()
	read := func(values map[string]any, args ...string) settings.Fields {
		t.Helper()
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "serve.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		fields := parsed(t, args...)
		if _, err := fields.Read(file); err != nil {
			t.Fatal(err)
		}
		return fields
	}
	print := func(fields settings.Fields) string {
		t.Helper()
		var out strings.Builder
		if err := fields.Write(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	all, line := map[string]any{}, []string(nil)
	untouched := print(parsed(t))
	parsed(t).Flags.VisitAll(func(flag *pflag.Flag) {
		value, args := sample(t, flag)
		all[flag.Name], line = value, append(line, args...)
		fromFile, fromLine := print(read(map[string]any{flag.Name: value})), print(parsed(t, args...))
		if fromFile != fromLine || fromFile == untouched {
			t.Errorf("--%s: by the file\n%s\nby the command line\n%s", flag.Name, fromFile, fromLine)
		}
	})
	if len(all) < 90 {
		t.Errorf("%d settings", len(all))
	}
	if fromFile, fromLine := print(read(all)), print(parsed(t, line...)); fromFile != fromLine {
		t.Errorf("all of them, by the file\n%s\nby the command line\n%s", fromFile, fromLine)
	}
	others := map[string]any{"api-address": "file", "api-name": []string{"file"}, "http3": true, "backup-interval": "1m"}
	want := print(parsed(t, line...))
	if got := print(read(others, line...)); got != want {
		t.Errorf("a file beside the command line:\n%s\nwant\n%s", got, want)
	}
}
