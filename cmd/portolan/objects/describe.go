package objects

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/cmd/portolan/text"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/filesd"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/xds/admin"
)

func newDescribeServiceCommand(env *environment) *cobra.Command {
	outputs := []string{"table", "json", "yaml"}
	var output, namespace string
	c := &cobra.Command{
		Use:     "service [HOST]",
		Aliases: []string{"services", "svc"},
		Short:   "List the services, or show those of a host with their endpoints and subsets",
		Long: `Show what proxies are told of a host: the services that the registries have under
its name, the endpoints by registry, locality and health, the mode of mutual TLS by port
with the PeerAuthentication that says so, and the subsets of the DestinationRules for
it. LABELLED are the endpoints to which clients encrypt, unless the mode is DISABLE.
Without a host it lists all services, those too that no object declares.

  HEALTHY    it gets requests
  UNHEALTHY  proxies know it and send it nothing
  DRAINING   it finishes what it has
  LEFT OUT   its health checks did not succeed, or it is drained: it is no endpoint at all

A subset that selects no endpoint is marked: a route to it fails. Where services come
from Consul or a file, what is odd about their endpoints follows, and why what is
served of them may be old.`,
		Example: `  portolan describe service
  portolan describe service reviews.shop.internal
  portolan describe service reviews.shop.internal -n shop -o json`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cli.CompleteHosts(env.Environment),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return env.listServices(c.Context(), namespace, output)
			}
			list, err := env.services(c.Context(), args[0], namespace)
			if err != nil {
				return err
			}
			if output != "table" {
				return cli.WriteDocument(env.Stdout, output, list)
			}
			for i, s := range list.Items {
				if i > 0 {
					fmt.Fprintln(env.Stdout)
				}
				if err := env.printService(s); err != nil {
					return err
				}
			}
			return env.printDegraded(c.Context(), list.Items)
		},
	}
	f := c.Flags()
	f.StringVarP(&namespace, "namespace", "n", "", "namespace of the services (default all)")
	cli.RegisterOutput(c, &output, outputs...)
	return c
}

// services returns the services of a host, and an error if there are none.
func (e *environment) services(ctx context.Context, host, namespace string) (admin.ServiceList, error) {
	var list admin.ServiceList
	query := url.Values{"host": {host}}
	where := ""
	if namespace != "" {
		query.Set("namespace", namespace)
		where = " in namespace " + namespace
	}
	err := e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		return c.JSON(ctx, admin.ServicesPath+"?"+query.Encode(), &list)
	})
	if err == nil && len(list.Items) == 0 {
		err = fmt.Errorf("service %s: no registry has this host%s: see the hosts there are with portolan describe service%s", host, where, cli.OrDidYouMean(list.Similar))
	}
	return list, err
}

// listServices prints all services of a namespace, or of all.
func (e *environment) listServices(ctx context.Context, namespace, output string) error {
	var list admin.ServiceNames
	query := ""
	if namespace != "" {
		query = "?" + url.Values{"namespace": {namespace}}.Encode()
	}
	err := e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		return c.JSON(ctx, admin.ServicesPath+query, &list)
	})
	if err != nil {
		return err
	}
	if output != "table" {
		return cli.WriteDocument(e.Stdout, output, list)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(e.Stderr, "There are no services.")
		return nil
	}
	rows := [][]string{{"HOST", "NAMESPACE", "REGISTRY", "PORTS", "HEALTHY"}}
	for _, s := range list.Items {
		rows = append(rows, []string{
			s.Hostname, s.Namespace, registriesOf(s),
			cli.FormatList(cli.MapSlice(s.Ports, func(p admin.Port) string { return text.Port(uint32(p.Number), p.Protocol) }), false),
			endpointsOf(s),
		})
	}
	return cli.WriteTable(e.Stdout, rows)
}

// endpointsOf formats how many endpoints of a service are healthy, or what it is an alias of.
func endpointsOf(s admin.ServiceName) string {
	if s.AliasOf != "" {
		return "alias of " + s.AliasOf
	}
	return fmt.Sprintf("%d/%d", s.Healthy, s.Endpoints)
}

// registriesOf formats the registries of a service, with its clusters.
func registriesOf(s admin.ServiceName) string {
	return cli.FormatList(cli.MapSlice(s.Registries, func(name string) string { return withClusters(name, s.Clusters...) }), true)
}

// withClusters returns the name of a registry, of Kubernetes with its clusters.
func withClusters(registry string, clusters ...string) string {
	if registry == string(discovery.Kubernetes) && len(clusters) > 0 {
		registry += " (" + cli.FormatList(clusters, true) + ")"
	}
	return registry
}

func (e *environment) printService(s admin.Service) error {
	about := healthCounts(s.Endpoints)
	if s.AliasOf != "" {
		about = "alias of " + s.AliasOf
	}
	fmt.Fprintf(e.Stdout, "service %s  namespace %s  %s\n\n", s.Hostname, s.Namespace, about)
	if err := cli.WriteTable(e.Stdout, definitionRows(s.Definitions)); err != nil {
		return err
	}
	fmt.Fprintln(e.Stdout)
	switch {
	case s.AliasOf == s.Hostname:
		fmt.Fprintln(e.Stdout, "It leads back to itself: clients reach nothing by this name. Mend externalName of its Service.")
		return nil
	case s.AliasOf != "":
		fmt.Fprintf(e.Stdout, "Clients that see %s reach that by this name too, with the policies for that host.\n", s.AliasOf)
		return nil
	case namesOnly(s):
		fmt.Fprintf(e.Stdout, "Its external name %s is no service that is exported to %s, and it has no port: clients reach nothing by this name. "+
			"Export a service of that host to the namespace, or give the Service its ports.\n", s.Definitions[0].ExternalName, s.Namespace)
		return nil
	case len(s.Aliases) > 0:
		fmt.Fprintf(e.Stdout, "Aliases: %s\n\n", cli.FormatList(s.Aliases, false))
	}
	if len(s.Endpoints) == 0 {
		fmt.Fprintln(e.Stdout, "No endpoints.")
	} else if err := cli.WriteTable(e.Stdout, endpointRows(s.Endpoints)); err != nil {
		return err
	}
	if rows := mutualRows(s.Endpoints); len(rows) > 1 {
		fmt.Fprintln(e.Stdout)
		if err := cli.WriteTable(e.Stdout, rows); err != nil {
			return err
		}
	}
	if len(s.Subsets) > 0 {
		fmt.Fprintln(e.Stdout)
		if err := cli.WriteTable(e.Stdout, subsetRows(s.Subsets)); err != nil {
			return err
		}
	}
	for _, f := range s.Findings {
		fmt.Fprintf(e.Stdout, "\n! %s [%s] %s\n", f.Severity, f.Codes(), cli.Plain(f.Text()))
	}
	return nil
}

// namesOnly reports whether a service that is no alias only names another host: it has no port.
func namesOnly(s admin.Service) bool {
	return s.AliasOf == "" && len(s.Definitions) > 0 && s.Definitions[0].ExternalName != "" &&
		!slices.ContainsFunc(s.Definitions, func(d admin.Definition) bool { return len(d.Ports) > 0 })
}

// printDegraded prints what may be out of date about services from Consul, clusters or files.
func (e *environment) printDegraded(ctx context.Context, services []admin.Service) error {
	var fromConsul consul.Status
	if err := e.registryStatus(ctx, services, discovery.Consul, &fromConsul); err != nil {
		return err
	}
	for _, d := range fromConsul.Datacenters {
		if d.Degraded != "" {
			fmt.Fprintf(e.Stdout, "\n! Consul, datacenter %s: %s\n", d.Name, d.Degraded)
		}
	}
	var fromClusters []kube.Status
	if err := e.registryStatus(ctx, services, discovery.Kubernetes, &fromClusters); err != nil {
		return err
	}
	for _, c := range fromClusters {
		if c.Degraded != "" {
			fmt.Fprintf(e.Stdout, "\n! Kubernetes, %s\n", cli.Plain(c.Degraded))
		}
	}
	var fromFiles filesd.Status
	if err := e.registryStatus(ctx, services, discovery.File, &fromFiles); err != nil {
		return err
	}
	for _, f := range fromFiles.Files {
		if f.Problem != "" {
			fmt.Fprintf(e.Stdout, "\n! File: %s\n", f.Problem)
		}
	}
	return nil
}

// registryStatus reads the status of a registry if one of the services comes from it.
func (e *environment) registryStatus(ctx context.Context, services []admin.Service, provider discovery.Provider, into any) error {
	of := func(d admin.Definition) bool { return d.Registry == string(provider) }
	if !slices.ContainsFunc(services, func(s admin.Service) bool { return slices.ContainsFunc(s.Definitions, of) }) {
		return nil
	}
	return e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		return c.JSON(ctx, serve.StatusPath(provider), into)
	})
}

// healthCounts formats how many endpoints are in each state, as in "3 healthy, 1 unhealthy".
func healthCounts(endpoints []admin.Endpoint) string {
	var parts []string
	for _, state := range []string{admin.Healthy, admin.Unhealthy, admin.Draining, admin.LeftOut} {
		n := 0
		for _, e := range endpoints {
			if e.Health == state {
				n++
			}
		}
		if n > 0 || state == admin.Healthy {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(state)))
		}
	}
	return strings.Join(parts, ", ")
}

func definitionRows(definitions []admin.Definition) [][]string {
	rows := [][]string{{"REGISTRY", "NAME", "RESOLUTION", "ADDRESS", "PORTS", "EXPORT-TO"}}
	for _, d := range definitions {
		row := []string{
			d.Registry, d.Name, d.Resolution, d.Address,
			cli.FormatList(cli.MapSlice(d.Ports, func(p admin.Port) string { return text.Port(uint32(p.Number), p.Protocol) }), true), cli.FormatList(d.ExportTo, true),
		}
		if len(d.Places) > 0 {
			row = append(row, "from "+cli.FormatList(d.Places, false))
		}
		rows = append(rows, row)
	}
	return rows
}

// endpointRows returns the endpoints by registry, locality and health.
func endpointRows(endpoints []admin.Endpoint) [][]string {
	endpoints = slices.Clone(endpoints)
	slices.SortStableFunc(endpoints, func(a, b admin.Endpoint) int {
		return slices.Compare([]string{a.Registry, a.Cluster, a.Locality, a.Health}, []string{b.Registry, b.Cluster, b.Locality, b.Health})
	})
	rows := [][]string{{"REGISTRY", "LOCALITY", "HEALTH", "ADDRESS", "PORTS", "WORKLOAD", "NETWORK", "WEIGHT", "SUBSETS"}}
	for _, e := range endpoints {
		row := []string{
			withClusters(e.Registry, e.Cluster), e.Locality, e.Health, e.Address,
			cli.FormatList(cli.MapSlice(e.Ports, func(p admin.Port) string { return p.Name + "=" + strconv.Itoa(p.Number) }), true),
			e.Workload, e.Network, text.Number(e.Weight),
			cli.FormatList(cli.MapSlice(e.Subsets, func(s admin.SubsetRef) string { return s.Name }), true),
		}
		if e.Reason != "" {
			row = append(row, "! "+e.Reason)
		}
		rows = append(rows, row)
	}
	return rows
}

// mutualRows returns how the endpoints take connections, by port, and how many of them are labelled
// for mutual TLS; a header alone for services outside the mesh.
func mutualRows(endpoints []admin.Endpoint) [][]string {
	type mode struct{ port, mode, from string }
	all, labelled := map[mode]int{}, map[mode]int{}
	for _, e := range endpoints {
		for _, p := range e.Ports {
			if p.MTLS == "" {
				continue
			}
			m := mode{port: p.Name, mode: p.MTLS, from: "the default"}
			if p.MTLSFrom != "" {
				m.from = "peerauthentication/" + p.MTLSFrom
			}
			if all[m]++; p.Labelled {
				labelled[m]++
			}
		}
	}
	rows := [][]string{{"PORT", "MTLS", "FROM", "ENDPOINTS", "LABELLED"}}
	for _, m := range slices.SortedFunc(maps.Keys(all), func(a, b mode) int {
		return slices.Compare([]string{a.port, a.mode, a.from}, []string{b.port, b.mode, b.from})
	}) {
		rows = append(rows, []string{m.port, m.mode, m.from, strconv.Itoa(all[m]), strconv.Itoa(labelled[m])})
	}
	return rows
}

func subsetRows(subsets []admin.Subset) [][]string {
	rows := [][]string{{"SUBSET", "RULE", "FOR", "LABELS", "ENDPOINTS", "HEALTHY"}}
	for _, s := range subsets {
		row := []string{
			s.Name, "destinationrule/" + s.Rule, s.Host, cli.Pairs(s.Labels, true), strconv.Itoa(s.Endpoints), strconv.Itoa(s.Healthy),
		}
		switch {
		case s.Endpoints == 0:
			row = append(row, "! selects nothing")
		case s.Healthy == 0:
			row = append(row, "! none is healthy")
		}
		rows = append(rows, row)
	}
	return rows
}
