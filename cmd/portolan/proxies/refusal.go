package proxies

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/names"
)

func newExplainRefusalCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "refusal DETAILS",
		Short: "Show which policy refused a request, from the details in an access log",
		Long: `Show which policy refused a request. DETAILS are the response code details in the access
log of the proxy that answered 401 or 403 (%RESPONSE_CODE_DETAILS%), or the termination
details of a connection that it closed (%CONNECTION_TERMINATION_DETAILS%); or a whole line
that has them. No server is asked.`,
		Example: `  portolan explain refusal 'rbac_access_denied_matched_policy[ns[shop]-policy[deny]-rule[1]]'
  portolan explain refusal 'jwt_authn_access_denied{Jwt_is_expired}'`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, ok := refusalOf(detailsIn(args[0]))
			if !ok {
				return exit.With(exit.Data, fmt.Errorf("%q are no details of a policy: they begin with rbac_access_denied, jwt_authn_access_denied or ext_authz", args[0]))
			}
			fmt.Fprintln(env.Stdout, text)
			return nil
		},
	}
}

// refusalDetails finds the details of a policy in a line. Those of a rule have brackets in brackets.
var refusalDetails = regexp.MustCompile(`rbac_access_denied_matched_policy\[[^\s"]*\]|jwt_authn_access_denied\{[^}\s"]*\}|ext_authz_(denied|error)`)

// detailsIn returns the details of a policy in a text, the text itself if it has none.
func detailsIn(text string) string { return cmp.Or(refusalDetails.FindString(text), text) }

// checkHint is the command that tells more of a refusal.
const checkHint = "portolan authz check --to WORKLOAD --from IDENTITY tells why"

// refusalOf says what the details of a response mean; false for those of no policy.
func refusalOf(details string) (string, bool) {
	if policy, ok := between(details, "rbac_access_denied_matched_policy[", "]"); ok {
		rule, ok := names.ParsePolicyRule(policy)
		switch {
		case policy == "none":
			return "No rule of the ALLOW policies that are for the workload allows it: " + checkHint + ".", true
		case !ok:
			return "The rule " + policy + " of a filter refused it, which is of no AuthorizationPolicy.", true
		}
		key := config.Key{Kind: schema.AuthorizationPolicy, Namespace: rule.Namespace, Name: rule.Name}
		see := fmt.Sprintf("portolan get authorizationpolicy %s -n %s -o yaml", rule.Name, rule.Namespace)
		if strings.HasSuffix(policy, names.UnaskedSuffix) {
			return fmt.Sprintf("spec.rules[%d] of %s has a provider decide, which cannot be asked: %s.", rule.Rule, key, see), true
		}
		return fmt.Sprintf("spec.rules[%d] of %s denies it: %s.", rule.Rule, key, see), true
	}
	if reason, ok := between(details, "jwt_authn_access_denied{", "}"); ok {
		return fmt.Sprintf("The token is refused (%s), by a RequestAuthentication that is for the workload: %s.", strings.ReplaceAll(reason, "_", " "), checkHint), true
	}
	switch {
	case strings.HasPrefix(details, "ext_authz_denied"):
		return "The provider of a CUSTOM policy refused it.", true
	case strings.HasPrefix(details, "ext_authz_error"):
		return "The provider of a CUSTOM policy could not be asked.", true
	}
	return "", false
}

func between(text, begin, end string) (string, bool) {
	rest, begins := strings.CutPrefix(text, begin)
	inner, ends := strings.CutSuffix(rest, end)
	return inner, begins && ends
}
