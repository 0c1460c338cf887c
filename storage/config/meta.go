package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// metadataFields includes fields that are not kept.
var metadataFields = []string{
	"name", "namespace", "generateName", "labels", "annotations", "ownerReferences", "resourceVersion", "creationTimestamp", "generation", "uid",
	"managedFields", "selfLink", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds",
}

var ownerFields = []string{"apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"}

// meta reads the metadata, which every kind has alike.
func (o *object) meta(c *Config, raw json.RawMessage) {
	if len(raw) == 0 || isNull(raw) {
		return
	}
	members := o.members("metadata", raw)
	o.namespace = o.text("metadata.namespace", members["namespace"])
	o.objectName = o.text("metadata.name", members["name"])
	c.Namespace, c.Name = o.namespace, o.objectName
	for _, name := range sortedKeys(members) {
		field, value := fieldPath("metadata", name), members[name]
		switch name {
		case "name", "namespace", "selfLink":
		case "managedFields":
			if o.keepServerFields {
				c.ManagedFields = o.managers(field, value)
			}
		case "generateName":
			c.GenerateName = o.text(field, value)
		case "ownerReferences":
			c.OwnerReferences = o.owners(field, value)
		case "labels":
			c.Labels = o.texts(field, value)
		case "annotations":
			c.Annotations = o.texts(field, value)
		case "resourceVersion":
			c.ResourceVersion = o.text(field, value)
		case "creationTimestamp", "generation", "uid":
			if o.keepServerFields {
				o.serverField(c, name, value)
			}
		case "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds":
			if !isNull(value) && !bytes.Equal(value, []byte("[]")) && !bytes.Equal(value, []byte(`""`)) {
				o.refuse(field, "is not supported: leave it out")
			}
		default:
			o.reportUnknown("metadata", name, metadataFields)
		}
	}
}

func (o *object) serverField(c *Config, name string, raw json.RawMessage) {
	field := "metadata." + name
	switch {
	case isNull(raw):
	case name == "uid":
		c.UID = o.text(field, raw)
	case name == "generation":
		if json.Unmarshal(raw, &c.Generation) != nil {
			o.fail(field, "must be a whole number, is %s", o.shortened(raw))
		}
	default:
		created, err := time.Parse(time.RFC3339, o.text(field, raw))
		if year := created.UTC().Year(); err != nil || year < 1 || year > 9999 { // a year that no client could read

			o.fail(field, "must be a time such as 2026-01-31T12:00:00Z, is %s", o.shortened(raw))
			return
		}
		c.CreationTimestamp = created.UTC().Truncate(time.Second)
	}
}

// owners reads owner references, which have the fields of Kubernetes.
func (o *object) owners(field string, raw json.RawMessage) []metav1.OwnerReference {
	var items []json.RawMessage
	if isNull(raw) {
		return nil
	}
	if json.Unmarshal(raw, &items) != nil {
		o.fail(field, "must be a list, is %s", o.shortened(raw))
		return nil
	}
	var out []metav1.OwnerReference
	for i, item := range items {
		if o.full() {
			break
		}
		out = append(out, o.owner(fmt.Sprintf("%s[%d]", field, i), item))
	}
	return out
}

// managers reads the managed fields. The text of the fields stays unread.
func (o *object) managers(field string, raw json.RawMessage) (out []metav1.ManagedFieldsEntry) {
	if err := json.Unmarshal(raw, &out); err != nil {
		o.fail(field, "must be a list of managers, as a server has written it: %v", err)
	}
	return out
}

func (o *object) owner(field string, raw json.RawMessage) (out metav1.OwnerReference) {
	members := o.members(field, raw)
	for _, name := range sortedKeys(members) {
		at, value := fieldPath(field, name), members[name]
		switch name {
		case "apiVersion":
			out.APIVersion = o.text(at, value)
		case "kind":
			out.Kind = o.text(at, value)
		case "name":
			out.Name = o.text(at, value)
		case "uid":
			out.UID = types.UID(o.text(at, value))
		case "controller":
			out.Controller = o.truth(at, value)
		case "blockOwnerDeletion":
			out.BlockOwnerDeletion = o.truth(at, value)
		default:
			o.reportUnknown(field, name, ownerFields)
		}
	}
	return out
}

// truth returns true or false; nil for null.
func (o *object) truth(field string, raw json.RawMessage) (out *bool) {
	if json.Unmarshal(raw, &out) != nil {
		o.fail(field, "must be true or false, is %s", o.shortened(raw))
	}
	return out
}
