package proxies

import (
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
)

// proxyScope holds the flags for the namespace of the proxies that a command is about.
type proxyScope struct {
	namespace string // empty for all
	all       bool
}

func (s *proxyScope) register(c *cobra.Command) {
	c.Flags().StringVarP(&s.namespace, "namespace", "n", "", "only the proxies of a namespace (default all)")
	c.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "the proxies of all namespaces")
}

func (s *proxyScope) check() error {
	return cli.OneScope(s.all, s.namespace != "")
}

// hintNamespace adds a hint to -n to the error of a user who may not see the proxies of all
// namespaces.
func hintNamespace(err error, namespace string) error {
	if namespace == "" && apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; -n NAMESPACE asks about the proxies of one namespace alone", err)
	}
	return err
}
