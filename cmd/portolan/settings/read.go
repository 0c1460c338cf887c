package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

// Fields are what a file may have.
type Fields struct {
	// Flags are the fields.
	Flags *pflag.FlagSet
	// Refused says of other flags what to do instead.
	Refused map[string]string
	// Shared is the heading of flags that have none of their own.
	Shared string
}

// Origins has, by the name of a flag, the place that has set it, as FILE:LINE.
type Origins map[string]string

// Read sets flags as a file says. A flag that is set already keeps its value: the command line goes
// before the file. Read returns where the flags of the file were set. The error has all faults, each
// with its line; the flags without a fault are set even so, so that a caller can look for more.
func (f Fields) Read(file string) (Origins, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fmt.Errorf("%s: is empty: write fields, such as api-address: 127.0.0.1:15080, or at least a comment", file)
	}
	fields, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	var faults *multierror.Error
	origins, lines := Origins{}, map[string]int{}
	for i := 0; i+1 < len(fields); i += 2 {
		name, value := fields[i], fields[i+1]
		fault := func(format string, args ...any) {
			faults = multierror.Append(faults, fmt.Errorf("%s:%d: %s: %s", file, name.Line, name.Value, fmt.Sprintf(format, args...)))
		}
		if line := lines[name.Value]; line > 0 {
			fault("is in line %d too: leave one of them out", line)
			continue
		}
		lines[name.Value] = name.Line
		flag := f.Flags.Lookup(name.Value)
		if flag == nil {
			fault("%s", f.unknown(name.Value))
			continue
		}
		if flag.Changed {
			if err := try(f.Flags, flag, value); err != nil {
				fault("%v", err)
			}
			continue
		}
		if err := set(f.Flags, flag, value); err != nil {
			fault("%v", err)
			continue
		}
		origins[flag.Name] = fmt.Sprintf("%s:%d", file, name.Line)
	}
	return origins, faults.ErrorOrNil()
}

// yamlLine is the line in an error of the parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse returns the names and values of a document, by turns.
func parse(file string, text []byte) ([]*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil // there are only comments
	}
	if err == nil {
		if err = decoder.Decode(&more); err == nil {
			return nil, fmt.Errorf("%s:%d: a second document begins here: put all fields into one", file, more.Line)
		}
	}
	if !errors.Is(err, io.EOF) {
		place := file
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
			place += ":" + m[1]
		}
		return nil, fmt.Errorf("%s: is not YAML: %s", place, yamlLine.ReplaceAllString(err.Error(), ""))
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: has no fields: write lines such as api-address: 127.0.0.1:15080", file, root.Line)
	}
	return root.Content, nil
}

// unknown says what to do about a name that is no field.
func (f Fields) unknown(name string) string {
	if why := f.Refused[name]; why != "" {
		return why
	}
	if bare := strings.TrimLeft(name, "-"); bare != name && f.Flags.Lookup(bare) != nil {
		return "write it without dashes before it"
	}
	var meant []string
	f.Flags.VisitAll(func(flag *pflag.Flag) {
		if spelling.Similar(name, flag.Name) {
			meant = append(meant, flag.Name)
		}
	})
	return "is no setting" + help.DidYouMean(meant)
}
