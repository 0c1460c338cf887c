package proxies

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
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
	if s.all && s.namespace != "" {
		return exit.With(exit.Usage, errors.New("-A is all namespaces, and -n is one: leave one of them out"))
	}
	return nil
}

// hintNamespace adds a hint to -n to the error of a user who may not see the proxies of all
// namespaces.
func hintNamespace(err error, namespace string) error {
	if namespace == "" && apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; -n NAMESPACE asks about the proxies of one namespace alone", err)
	}
	return err
}
