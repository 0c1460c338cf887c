package settings

import (
	"errors"
	"slices"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/portolan-mesh/portolan/cmd/portolan/help"
)

// scalars has, by the type of a flag, the tags of the scalars that its field may be. A type that is
// not here takes text.
var scalars = map[string][]string{
	"bool": {"!!bool"}, "int": {"!!int"}, "int64": {"!!int"}, "uint32": {"!!int"},
	"duration": {"!!str", "!!int"}, "quantity": {"!!str", "!!int", "!!float"},
}

// set sets a flag to a value of a file.
func set(flags *pflag.FlagSet, flag *pflag.Flag, value *yaml.Node) error {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if value.ShortTag() == "!!null" {
		return errors.New("has no value: write one, or leave the field out")
	}
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		items, err := texts(value)
		if err == nil {
			err = list.Replace(items)
		}
		flag.Changed = flag.Changed || err == nil
		return err
	}
	if value.Kind != yaml.ScalarNode {
		return errors.New("takes one value: write no list and no fields here")
	}
	tags, typed := scalars[flag.Value.Type()]
	switch {
	case !typed && !isText(value):
		return errText(value)
	case typed && !slices.Contains(tags, value.ShortTag()):
		return help.InvalidValue(flag, value.Value, errors.New("is of the wrong type"))
	}
	var invalid *pflag.InvalidValueError
	err := flags.Set(flag.Name, value.Value)
	if errors.As(err, &invalid) {
		return help.InvalidValue(flag, value.Value, invalid.Unwrap())
	}
	return err
}

// try returns the error that set would return, and leaves the flag as it is.
func try(flags *pflag.FlagSet, flag *pflag.Flag, value *yaml.Node) error {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		was := list.GetSlice()
		defer func() { _ = list.Replace(was) }() // it had this value
	} else {
		was := flag.Value.String()
		defer func() { _ = flag.Value.Set(was) }() // it had this value
	}
	return set(flags, flag, value)
}

// texts returns the items of a list.
func texts(list *yaml.Node) ([]string, error) {
	if list.Kind != yaml.SequenceNode {
		return nil, errors.New("is a list: write its items as [A, B], or each in a line of its own after a dash")
	}
	out := make([]string, 0, len(list.Content))
	for _, item := range list.Content {
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if !isText(item) {
			return nil, errText(item)
		}
		out = append(out, item.Value)
	}
	return out, nil
}

// errText is the error about a value that is no text.
func errText(value *yaml.Node) error {
	if value.Kind != yaml.ScalarNode {
		return errors.New("an item is a list or has fields: write text")
	}
	return errors.New(value.Value + " is no text to YAML: put it into quotes")
}

// isText says whether a value is text. YAML takes << for a merge, which it is as a name alone.
func isText(value *yaml.Node) bool {
	tag := value.ShortTag()
	return value.Kind == yaml.ScalarNode && (tag == "!!str" || tag == "!!merge")
}
