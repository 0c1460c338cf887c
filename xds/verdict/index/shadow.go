package index

import (
	"fmt"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// addShadowing adds a verdict if other sources have an object of the same key. Shadows need no
// row: Index.Next judges the object again when they differ.
func addShadowing(j *verdict.Judge, object *config.Config) {
	s := j.Facts().Shadows().Value(object.Key().Path())
	if s == nil {
		return
	}
	var others []string
	for _, o := range s.Objects[1:] {
		others = append(others, source(o))
	}
	j.Add(verdict.Verdict{
		Code:    verdict.SourceShadowed,
		Message: fmt.Sprintf("%s and %s have an object of this kind, namespace and name: that of %s is used alone", source(s.Objects[0]), strings.Join(others, " and "), source(s.Objects[0])),
		Remedy:  "delete it in all sources but one, or rename one",
	})
}

// source names the source of an object.
func source(of *config.Config) string {
	if of.Source == "" {
		return "the store"
	}
	return "the source " + of.Source
}
