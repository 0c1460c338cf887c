package file_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/file"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// FuzzRead replaces a sound text by any text. While that has a fault, no object of the
// sound one goes. Reading it again changes nothing.
func FuzzRead(f *testing.F) {
	examples, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(examples) == 0 {
		f.Fatalf("%d examples: %v", len(examples), err)
	}
	for _, name := range examples[:min(len(examples), 10)] {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	sound := entries(f, 1, "x", "y")
	for _, text := range []string{"", "#", "---\n---\n", broken("x"), sound + "---\na: [", "{}", `{"kind":"List","items":[1,{}]}`, sound[:len(sound)/2]} {
		f.Add([]byte(text))
	}
	c := file.New(file.Options{Dir: "unused", Worker: cache.NewWorker(), Schemas: schema.Pilot()})
	before := c.Settle(nil, []byte(sound))
	if len(before.Paths) != 2 || before.Broken != 0 {
		f.Fatalf("the sound text has %+v", before)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		after, again := c.Settle(before, data), c.Settle(nil, data)
		for _, path := range before.Paths {
			if after.Broken > 0 && !slices.Contains(after.Paths, path) {
				t.Errorf("%s is gone beside a fault", path)
			}
		}
		if again.Broken == 0 && after.Broken == 0 && !slices.Equal(again.Paths, after.Paths) {
			t.Errorf("a sound text has %v after another, and %v alone", after.Paths, again.Paths)
		}
		if twice := c.Settle(after, data); twice.Broken != after.Broken || len(twice.Paths) != len(after.Paths) {
			t.Errorf("read twice it holds %v, and %v", after.Paths, twice.Paths)
		}
	})
}
