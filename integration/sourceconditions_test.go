package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestObjectsOfFilesHaveConditions: get, describe and wait treat an object of a file as one of
// the store. They say whether proxies have its current content, and what is odd about it. When
// it is gone, they say nothing.
func TestObjectsOfFilesHaveConditions(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		x := newShop(t)
		dir := newConfigDir(t, map[string]string{
			"shop.yaml": strings.Join([]string{x.entry(x.v1, x.v2), x.rule(), x.door()}, "\n---\n"), "routes.yaml": x.routes(100, 0),
		})
		s := startServer(t, serverOptions{args: []string{"--config-dir", dir.path}})
		_, client := s.startPair(v)
		awaitReply(t, x.atSidecar("/"), "v1")
		shows := func(what, pattern string, args ...string) {
			t.Helper()
			eventually(t, what, func() error {
				if out := s.must("", args...); !regexp.MustCompile(pattern).MatchString(out) {
					return fmt.Errorf("%s", out)
				}
				return nil
			})
		}
		wide := []string{"get", "virtualservice", "reviews", "-n", "shop", "-o", "wide"}
		shows("it is programmed", `(?m)^reviews .* Acknowledged \d/\d `, wide...)
		shows("describe shows conditions", `(?m)^Programmed +True .*\d of \d connected proxies have all that is made of it`, "describe", "virtualservice", "reviews", "-n", "shop")

		// After wait returns, the condition is there.
		version := func() (out string) {
			t.Helper()
			var object struct {
				Metadata struct{ ResourceVersion string }
			}
			if _, err := s.get("/apis/networking.istio.io/v1/namespaces/shop/virtualservices/reviews", &object); err != nil {
				t.Fatal(err)
			}
			return object.Metadata.ResourceVersion
		}
		before := version()
		dir.write("routes.yaml", x.routes(0, 100))
		eventually(t, "the change is read", func() error {
			if version() == before {
				return fmt.Errorf("it is at %s", before)
			}
			return nil
		})
		if out := s.must("", "wait", "virtualservice/reviews", "-n", "shop"); !strings.Contains(out, "distributed  2/2 proxies") {
			t.Errorf("wait says %s", out)
		}
		awaitReply(t, x.atSidecar("/"), "v2")
		shows("it is programmed again", `(?m)^reviews .* Acknowledged \d/\d `, wide...)

		// A verdict shows up as an issue of the object.
		dir.write("routes.yaml", strings.ReplaceAll(x.routes(0, 100), "subset: v2", "subset: v3"))
		shows("the missing subset is an issue", `PTL0102`, wide...)
		shows("it is one at its place", `(?m)^virtualservice/shop/reviews +routes.yaml: .*PTL0102`, "source", "describe", dir.path)
		dir.write("routes.yaml", x.routes(0, 100))
		eventually(t, "it is no issue any more", func() error {
			if out := s.must("", wide...); strings.Contains(out, "PTL") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
		// A broken edit changes nothing, and all commands about the object report it.
		watch := start(t, "get-w", binary, "get", "vs", "-n", "shop", "-w", "--server", "http://"+s.api)
		told := func(words string) {
			t.Helper()
			eventually(t, "get -w says "+words, func() error {
				if !strings.Contains(watch.output(), words) {
					return fmt.Errorf("it has said\n%s", watch.output())
				}
				return nil
			})
		}
		told("  SOURCE\nreviews ")
		dir.write("routes.yaml", strings.ReplaceAll(x.routes(0, 100), "subset: v2", "sbset: v2"))
		shows("describe tells of the fault", `(?s)NOT SERVED AS IT STANDS IN ITS SOURCE.*sbset.*CONDITION.*Accepted +True .*what is served of it from `, "describe", "virtualservice", "reviews", "-n", "shop")
		told("Warning: source " + dir.path + " has objects of the kind VirtualService that are not served as they stand there (1, such as virtualservice/shop/reviews): ")
		if err := watch.terminate(t); err != nil {
			t.Error(err)
		}
		if out := s.try("", "wait", "virtualservice/reviews", "-n", "shop"); out.code == 0 || !strings.Contains(out.stderr, "sbset") {
			t.Errorf("wait says %+v", out)
		}
		for args, want := range map[string]string{
			"get virtualservices -n shop -o yaml": "Warning: source " + dir.path + " has objects of the kind VirtualService that are not served as they stand there (1, such as virtualservice/shop/reviews): see portolan source describe " + dir.path + "\n",
			"get virtualservice/reviews -n shop":  "Warning: source " + dir.path + " has virtualservice/shop/reviews in a form that is not served: see portolan source describe " + dir.path + "\n",
			"get serviceentries -A -o json":       "",
			"get virtualservices -n other":        "No virtualservices found in namespace other; -A looks in all.\n",
		} {
			if out := s.try("", strings.Fields(args)...); out.code != 0 || out.stderr != want || strings.Contains(out.stdout, "Warning") {
				t.Errorf("%s: exit code %d, %s", args, out.code, out.stderr)
			}
		}
		if text, err := s.get("/readyz?verbose", nil); err != nil || !strings.Contains(string(text), "not served as it stands there: 1") {
			t.Errorf("%s, %v", text, err)
		}
		shows("the list counts the same", `(?m) directory .* 1 fault *$`, "source", "list")
		shows("and so does analyze", `PTL0182.* not served as it stands there: 1`, "analyze", "--failure-threshold", "error")
		dir.write("routes.yaml", x.routes(0, 100))
		eventually(t, "wait ends well again", func() error {
			if out := s.try("", "wait", "virtualservice/reviews", "-n", "shop"); out.code != 0 {
				return fmt.Errorf("%+v", out)
			}
			return nil
		})
		// A file that is no YAML may have any object.
		dir.write("torn.yaml", "kind: [")
		eventually(t, "get warns of the file", func() error {
			want := "Warning: source " + dir.path + " has what cannot be read, and may be any object (1): see portolan source describe " + dir.path + "\n"
			if out := s.try("", "get", "serviceentries", "-A", "-o", "name"); out.stderr != want {
				return fmt.Errorf("%+v", out)
			}
			return nil
		})
		if err := os.Remove(filepath.Join(dir.path, "torn.yaml")); err != nil {
			t.Fatal(err)
		}
		// An object with only warnings is served.
		beside := fill(addressed, "$name", "beside", "$port", 5432, "$target", 1)
		dir.write("shop/one.yaml", beside)
		dir.write("shop/two.yaml", strings.Replace(beside, "namespace: shop", "namespace: other", 1))
		shows("the folder is another's", `is in the namespace other`, "source", "describe", dir.path)
		if out := s.try("", "wait", "serviceentry/beside", "-n", "other"); out.code != 0 {
			t.Errorf("wait says %+v", out)
		}
		shows("the list counts a warning", `(?m) directory .* 1 warning *$`, "source", "list")
		if text, err := s.get("/readyz?verbose", nil); err != nil || strings.Contains(string(text), "as it stands") {
			t.Errorf("%s, %v", text, err)
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}
