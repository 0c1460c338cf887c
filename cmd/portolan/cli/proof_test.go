package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestExplainCredentials: a refused user learns what sort of token was sent, or where it came
// from.
func TestExplainCredentials(t *testing.T) {
	t.Setenv("PORTOLAN_TOKEN", "")
	t.Setenv("PORTOLAN_TOKEN_FILE", "")
	refused := errors.New("refused")
	explain := func(ofContext string, args ...string) string {
		var o Proof
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.register(f)
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		if ofContext != "" {
			o.token = ofContext
		}
		err := o.explain(refused)
		if !errors.Is(err, refused) {
			t.Errorf("%v is not the refusal", err)
		}
		return err.Error()
	}
	for _, c := range []struct{ name, got, want string }{
		{"no token", explain(""), "refused"},
		{"of a flag", explain("", "--token=put_x"), "refused"},
		{"a join token", explain("", "--token=pjt_shop_x"), "join token"},
		{"of a context", explain("put_x"), "portolan logout"},
	} {
		if !strings.Contains(c.got, c.want) || c.want == "refused" && c.got != c.want {
			t.Errorf("%s: %s", c.name, c.got)
		}
	}
	t.Setenv("PORTOLAN_TOKEN", "put_y")
	if got := explain(""); !strings.Contains(got, "PORTOLAN_TOKEN") {
		t.Errorf("of the environment: %s", got)
	}
}
