package objects

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage/config"
)

// summary describes in a few words what a change did to its object. For an updated object,
// that is the first field that differs, and how many more do.
func summary(change record.Change) string {
	if change.Outcome != "configured" {
		return change.Outcome
	}
	before, ok1 := contentOf(change.Before)
	after, ok2 := contentOf(change.After)
	if !ok1 || !ok2 {
		return change.Outcome + ", what is not known any more"
	}
	fields := fieldChanges("", before, after)
	switch len(fields) {
	case 0:
		return change.Outcome
	case 1:
		return fields[0].String()
	}
	return fmt.Sprintf("%s (+%d more)", fields[0], len(fields)-1)
}

// contentOf returns the part of an object that a user writes: spec, labels and annotations. It
// returns false if the object is not known, as when the record has only its name.
func contentOf(text json.RawMessage) (map[string]any, bool) {
	var object struct {
		Metadata struct {
			UID         string         `json:"uid"`
			Labels      map[string]any `json:"labels"`
			Annotations map[string]any `json:"annotations"`
		} `json:"metadata"`
	}
	var document map[string]any
	if json.Unmarshal(text, &object) != nil || json.Unmarshal(text, &document) != nil {
		return nil, false
	}
	content := config.Content(document)
	if _, nested := document["spec"]; content == nil || !nested && object.Metadata.UID == "" {
		return nil, false
	}
	for name, values := range map[string]map[string]any{"metadata.labels": object.Metadata.Labels, "metadata.annotations": object.Metadata.Annotations} {
		if len(values) > 0 {
			content[name] = values
		}
	}
	return content, true
}

// A side without the field is nil.
type fieldChange struct {
	path          string
	before, after any
}

// String is "path before -> after", "+path value" or "-path".
func (f fieldChange) String() string {
	switch {
	case f.before == nil && scalar(f.after):
		return "+" + f.path + " " + brief(f.after)
	case f.before == nil:
		return "+" + f.path
	case f.after == nil:
		return "-" + f.path
	case scalar(f.before) && scalar(f.after):
		return f.path + " " + brief(f.before) + " -> " + brief(f.after)
	}
	return f.path + " changed"
}

func scalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// briefLength is how many characters of a value are shown.
const briefLength = 40

func brief(value any) string {
	text := cli.Plain(fmt.Sprint(value))
	if text == "" {
		return `""`
	}
	if utf8.RuneCountInString(text) > briefLength {
		text = string([]rune(text)[:briefLength-3]) + "..."
	}
	return text
}

// fieldChanges returns the fields that differ between two JSON values, sorted by name.
func fieldChanges(path string, before, after any) []fieldChange {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	if a, ok := before.(map[string]any); ok {
		if b, ok := after.(map[string]any); ok {
			return mapChanges(path, a, b)
		}
	}
	if a, ok := before.([]any); ok {
		if b, ok := after.([]any); ok {
			return listChanges(path, a, b)
		}
	}
	return []fieldChange{{path, before, after}}
}

func mapChanges(path string, before, after map[string]any) []fieldChange {
	all := maps.Clone(before)
	maps.Copy(all, after)
	var changes []fieldChange
	for _, name := range slices.Sorted(maps.Keys(all)) {
		changes = append(changes, fieldChanges(memberPath(path, name), before[name], after[name])...)
	}
	return changes
}

// A name with a dot, as labels have, is in brackets.
func memberPath(path, name string) string {
	switch {
	case path == "":
		return name
	case strings.Contains(name, "."):
		return path + "[" + name + "]"
	}
	return path + "." + name
}

// listChanges skips equal elements at the beginning and the end of two lists, and compares the
// rest.
func listChanges(path string, before, after []any) []fieldChange {
	first := 0
	for first < min(len(before), len(after)) && reflect.DeepEqual(before[first], after[first]) {
		first++
	}
	last := 0
	for last < min(len(before), len(after))-first && reflect.DeepEqual(before[len(before)-1-last], after[len(after)-1-last]) {
		last++
	}
	before, after = before[first:len(before)-last], after[first:len(after)-last]
	var changes []fieldChange
	for i := range max(len(before), len(after)) {
		var a, b any
		if i < len(before) {
			a = before[i]
		}
		if i < len(after) {
			b = after[i]
		}
		changes = append(changes, fieldChanges(path+"["+strconv.Itoa(first+i)+"]", a, b)...)
	}
	return changes
}
