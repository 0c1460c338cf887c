package serve

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// clusterSecretsKind is the Kind of the secrets of clusters among the sources, and clusterSecrets
// begins their names.
const (
	clusterSecretsKind = "cluster secrets"
	clusterSecrets     = "secrets/"
)

// addClusterSecrets makes the reader of the secrets of clusters, which are no objects of the mesh.
func (s *server) addClusterSecrets() error {
	o := clustersecret.Options{Worker: s.worker}
	for _, of := range s.o.SecretsKube {
		connection, err := s.cluster(of.Cluster, useSecrets)
		if err != nil {
			return err
		}
		o.Sources = append(o.Sources, clustersecret.Source{Cluster: connection, Namespaces: of.Namespaces})
		for _, namespace := range of.Namespaces {
			s.secretNamespaces = s.secretNamespaces.Set(namespace, true)
		}
	}
	s.kubeSecrets = clustersecret.New(o)
	if len(o.Sources) > 0 {
		s.checks = append(s.checks, rest.Check{Name: "cluster-secrets", Degraded: s.clusterSecretsDegraded})
	}
	return nil
}

// clusterSecretsDegraded returns what is wrong with the secrets of clusters, nil if nothing is.
func (s *server) clusterSecretsDegraded() error {
	out := []error{s.kubeSecrets.Degraded()}
	for _, of := range s.secretSources() {
		out = append(out, of.refused())
	}
	return errors.Join(out...)
}

// secretSources returns the secrets of clusters as sources.
func (s *server) secretSources() (out []SourceStatus) {
	for _, of := range s.kubeSecrets.Status() {
		one := SourceStatus{
			Name: clusterSecrets + of.Cluster, Kind: clusterSecretsKind, Where: of.Server + " " + strings.Join(of.Namespaces, ","),
			Objects: map[string]int{}, Shadowed: len(s.shadowedSecrets(of)),
		}
		if n := of.Secrets.Len(); n > 0 {
			one.Objects[secretKind] = n
		}
		one.setProblem(of.Degraded)
		one.addProblems(of.Problems)
		for _, ended := range endedIn(of) {
			one.addFault(ended, false)
		}
		out = append(out, one)
	}
	return out
}

const secretKind = "Secret"

// shadowedSecrets returns, by key, which source has a secret that counts instead.
func (s *server) shadowedSecrets(of clustersecret.Status) map[string]string {
	out := map[string]string{}
	for _, key := range of.Earlier {
		out[key] = "a cluster named earlier"
	}
	stored := s.mirror.Snapshot()
	for key, object := range of.Secrets.All() {
		if stored != nil && stored.Get(object.Key()) != nil {
			out[key] = storeSource
		}
	}
	return out
}

// endedIn says which certificates of a source have ended.
func endedIn(of clustersecret.Status) (out []string) {
	for key, object := range of.Secrets.All() {
		for _, c := range object.Spec.(*secret.Spec).Sealed.Certificates {
			if time.Now().After(c.NotAfter) {
				out = append(out, fmt.Sprintf("Secret %s: the certificate %q in %s ended on %s: peers refuse it", key, c.Subject, c.Entry, c.NotAfter.Format(time.RFC3339)))
			}
		}
	}
	return out
}

// clusterSecretsOf returns the secrets of a source of them, without their data; false if there is
// no such source.
func (s *server) clusterSecretsOf(name string) (out []aggregate.Object, known bool) {
	for _, of := range s.kubeSecrets.Status() {
		if clusterSecrets+of.Cluster != name {
			continue
		}
		shadowed := s.shadowedSecrets(of)
		for key, object := range of.Secrets.All() {
			out = append(out, aggregate.Object{Config: config.Shown(object), Shadowed: shadowed[key] != "", By: shadowed[key], Place: kube.PlaceOf(object.Key(), "secrets")})
		}
		return out, true
	}
	return nil, false
}

// clusterSecretProblems returns the problems of the secrets of a source, by Key.String.
func (s *server) clusterSecretProblems(name string, out map[string][]cache.Problem) {
	for _, of := range s.kubeSecrets.Status() {
		if clusterSecrets+of.Cluster == name {
			for _, p := range of.Problems {
				out[p.Object] = append(out[p.Object], p)
			}
		}
	}
}

// usedClusterSecrets returns the secrets of clusters of which the store has none of the same name.
func (s *server) usedClusterSecrets() (out []*config.Config) {
	stored := s.mirror.Snapshot()
	for object := range s.kubeSecrets.Set().Secrets().Values() {
		if stored == nil || stored.Get(object.Key()) == nil {
			out = append(out, object)
		}
	}
	return out
}
