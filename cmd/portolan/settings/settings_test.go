package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/portolan-mesh/portolan/cmd/portolan/settings"
	"github.com/portolan-mesh/portolan/storage/errlist"
)

// fields returns fields of each type, as on a command line.
func fields(t *testing.T, args ...string) settings.Fields {
	t.Helper()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SortFlags = false
	f.String("name", "none", "")
	f.Bool("fast", true, "")
	f.Int("many", 3, "")
	f.Duration("pause", time.Hour, "")
	f.Var(&resource.QuantityValue{Quantity: resource.MustParse("1Gi")}, "size", "")
	f.StringSlice("host", nil, "")
	f.StringArray("dir", []string{"a"}, "")
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return settings.Fields{Flags: f, Refused: map[string]string{"key": "is a secret: name a file"}}
}

// given returns the flags that are set, as "name=value ...".
func given(f settings.Fields) string {
	var out []string
	f.Flags.VisitAll(func(flag *pflag.Flag) {
		if f.Flags.Changed(flag.Name) {
			out = append(out, flag.Name+"="+flag.Value.String())
		}
	})
	return strings.Join(out, " ")
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, args, want string }{
		{"# nothing yet\n", "", ""},
		{"name: a b # c\nfast: false\nmany: 0x10\npause: 90s\nsize: 3Mi\nhost: [a, 'b,c']\ndir:\n- x\n- y\n", "", `name=a b fast=false many=16 pause=1m30s size=3Mi host=[a,"b,c"] dir=[x,y]`},
		{"---\npause: 0\nsize: 5\n", "", "pause=0s size=5"},
		{"name: '12'\nhost: []\n", "", "name=12 host=[]"},
		{"dir: &all [x, &one y]\nhost: *all\nname: *one\n", "", "name=y host=[x,y] dir=[x,y]"},
		// The command line goes before the file.
		{"name: file\nmany: 4\nhost: [a]\n", "--name line --host b --host c", "name=line many=4 host=[b,c]"},
	} {
		f := fields(t, strings.Fields(c.args)...)
		if _, err := f.Read(write(t, c.text)); err != nil || given(f) != c.want {
			t.Errorf("%q: %s, %v; want %s", c.text, given(f), err, c.want)
		}
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "is empty",
		" \n\n":                         "is empty",
		"name: [":                       "is not YAML",
		"name: a\n\tfast: true":         ":2: is not YAML",
		"\x00":                          "is not YAML",
		"just words":                    ":1: has no fields",
		"- name: a":                     ":1: has no fields",
		"---\n":                         ": has no fields",
		"name: a\n---\nname: b\n":       ":2: a second document begins here",
		"name: a\n---\n- [":             "is not YAML",
		"nam: a":                        ":1: nam: is no setting: did you mean name?",
		"other: a":                      ":1: other: is no setting",
		"? [a]\n: b":                    "is no setting",
		"--name: a":                     ":1: --name: write it without dashes",
		"key: a":                        ":1: key: is a secret: name a file",
		"name: a\nfast: true\nname: b":  ":3: name: is in line 1 too",
		"name:":                         ":1: name: has no value",
		"name: 12":                      "12 is no text to YAML: put it into quotes",
		"name: true":                    "put it into quotes",
		"name: {a: b}":                  "takes one value",
		"name: [a]":                     "takes one value",
		"fast: 'true'":                  `"true": give true or false`,
		"fast: yes":                     `"yes": give true or false`,
		"many: 1.5":                     `"1.5": give a whole number`,
		"many: 99999999999999999999999": "give a whole number",
		"pause: 10":                     `"10": give a time with its unit`,
		"pause: soon":                   `"soon": give a time with its unit`,
		"size: lots":                    `"lots": give a size`,
		"host: a":                       "is a list: write its items as [A, B]",
		"host: [a, 12]":                 "12 is no text",
		"host: [[a]]":                   "an item is a list or has fields",
	} {
		f := fields(t)
		if _, err := f.Read(write(t, text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f.yaml:") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if got := given(f); got != "" && !strings.Contains(text, got[:strings.Index(got, "=")]+": a\n") {
			t.Errorf("%q: sets %s", text, got)
		}
	}
	for _, file := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none.yaml")} {
		if origins, err := fields(t).Read(file); err == nil || origins != nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestAllFaultsAtOnce: each fault has its line, also where the command line goes before the field. What
// is right is set, and where is known.
func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	f := fields(t, "--many", "7", "--host", "mine")
	file := write(t, "# first\nname: x\nfast: 1\nmany: none\nhost: 1\nhots: [a]\n")
	origins, err := f.Read(file)
	if err == nil {
		t.Fatal("no fault")
	}
	var got []string
	for line := range strings.SplitSeq(errlist.Lines(err.(*multierror.Error).Errors), "\n") {
		got = append(got, strings.TrimPrefix(strings.TrimSpace(line), file))
	}
	want := []string{
		"4 faults:", `:3: fast: "1": give true or false`, `:4: many: "none": give a whole number`,
		":5: host: is a list: write its items as [A, B], or each in a line of its own after a dash",
		":6: hots: is no setting: did you mean host?",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("faults: %q, want %q", got, want)
	}
	if given(f) != "name=x many=7 host=[mine]" || len(origins) != 1 || origins["name"] != file+":2" {
		t.Errorf("set: %s, of %v", given(f), origins)
	}
}

// TestWhatIsWrittenIsReadTheSame holds for text that YAML takes for something else, too.
func TestWhatIsWrittenIsReadTheSame(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "true", "12", "null", "~", "a: b", "# a", "[a]", "'a'", `"`, "a\nb", "*a", " a ", "ü", "0x1", "2020-01-01", "a\tb", "\r", "- a", "%a", "@a", "<<", strings.Repeat("long ", 100)} {
		f := fields(t, "--name", text, "--dir", text, "--dir", "b", "--pause", "90m", "--size", "3Gi", "--fast=false")
		var first, second strings.Builder
		if err := f.Write(&first); err != nil {
			t.Fatal(err)
		}
		again := fields(t)
		if _, err := again.Read(write(t, first.String())); err != nil || given(again) != given(f) {
			t.Errorf("%q: %v: it was %q, and is %q:\n%s", text, err, given(f), given(again), first.String())
		}
		if err := again.Write(&second); err != nil || second.String() != first.String() {
			t.Errorf("%q: written\n%s\nand then, %v,\n%s", text, first.String(), err, second.String())
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	f := fields(t, "--host", "a,b", "--many", "5")
	f.Shared = "All"
	if err := f.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := "## All\n# name: none\n# fast: true\nmany: 5\n# pause: 1h0m0s\n# size: 1Gi\nhost: [a, b]\n# dir: [a]\n"
	if out.String() != want {
		t.Errorf("it is\n%s\nwant\n%s", out.String(), want)
	}
}

// FuzzRead: no file crashes it, and what it takes is written and read the same.
func FuzzRead(f *testing.F) {
	f.Add("name: a\nhost: [a, b]\n")
	f.Add("a: &a [*a]\n")
	f.Add("<<: {name: a}\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := fields(t)
		if _, err := got.Read(write(t, text)); err != nil {
			return
		}
		var out strings.Builder
		if err := got.Write(&out); err != nil {
			t.Fatal(err)
		}
		again := fields(t)
		if _, err := again.Read(write(t, out.String())); err != nil || given(again) != given(got) {
			t.Errorf("%q: %v: %q and %q", text, err, given(got), given(again))
		}
	})
}
