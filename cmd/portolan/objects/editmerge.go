package objects

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

// merge reads the objects anew, and merges the user's change with those of others. It returns false
// if nothing but what servers report has changed.
func (s *editSession) merge(ctx context.Context, env *environment, wanted change) (changed bool, err error) {
	var now []storedOnly
	err = env.Call(ctx, func(ctx context.Context, c *client.Client) error {
		now, err = readNamed(ctx, env, c.Fresh(client.Freshness{Consistent: true}), selection{
			keys: cli.MapSlice(s.opened, func(o storedOnly) config.Key { return o.key }),
		})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("nothing was edited: %w", err)
	}
	var texts []string
	var others []string
	for i, operation := range wanted.operations {
		at := s.find(wanted.documents[i].Config.Key())
		before, stored := editable(s.opened[at].object), editable(now[at].object)
		if !reflect.DeepEqual(withoutVersion(before), withoutVersion(stored)) {
			others = append(others, fmt.Sprintf("%s, at revision %s", s.opened[at].key, stored.GetResourceVersion()))
		}
		typed, err := objectIn(operation)
		if err != nil {
			return false, err
		}
		typed.SetResourceVersion(before.GetResourceVersion())
		text, err := mergedText(editable(typed), before, stored)
		if err != nil {
			return false, err
		}
		texts = append(texts, text)
	}
	s.opened = now
	if len(others) == 0 {
		return false, nil
	}
	s.text, s.merged, s.problem = strings.Join(texts, "---\n"), true, nil
	s.head = comment("Somebody has changed this meanwhile:\n  "+strings.Join(others, "\n  ")+"\nWhat is below has both changes.") +
		conflictHead(s.text) + comment("Save and close the editor to write it; leave an empty file to give up.") + "#\n"
	return true, nil
}

// conflictHead explains the marks in a text; empty if there are none.
func conflictHead(text string) string {
	if !marked(text) {
		return ""
	}
	return comment("Where both have changed the same field, the lines are marked: yours, as it was opened,\nand as it is stored now. Leave of each such part what is to be written, without the marks.")
}

// anew returns a change for the versions of the objects that were read last.
func (s *editSession) anew(wanted change) (change, error) {
	var out change
	for i, operation := range wanted.operations {
		object, err := objectIn(operation)
		if err != nil {
			return change{}, err
		}
		d := wanted.documents[i]
		object.SetResourceVersion(s.opened[s.find(d.Config.Key())].object.GetResourceVersion())
		if operation, err = update(object); err != nil {
			return change{}, err
		}
		d.Config.ResourceVersion = object.GetResourceVersion()
		out.documents, out.operations = append(out.documents, d), append(out.operations, operation)
	}
	return out, nil
}

// mergedText returns the text of an object with the user's change and that of others, with marks
// where both have changed the same.
func mergedText(typed, before, stored *unstructured.Unstructured) (string, error) {
	merged := mergeFields(typed.Object, before.Object, stored.Object)
	var texts [3]string
	for i, side := range []any{merged.mine, merged.base, merged.theirs} {
		var err error
		if texts[i], err = comparableText(&unstructured.Unstructured{Object: asMap(side)}, true); err != nil {
			return "", err
		}
	}
	return mergeTexts(texts[0], texts[1], texts[2], "yours", "opened, revision "+before.GetResourceVersion(), "stored, revision "+stored.GetResourceVersion()), nil
}
