// Package probe defines how a WorkloadEntry that no group has made names a probe of its workload.
package probe

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/health"
)

// Of returns the probe that the annotations of a WorkloadEntry name (health.ProbeAnnotation): YAML
// with the fields of spec.probe of a WorkloadGroup. It returns nil if they name none.
func Of(annotations map[string]string) (*networking.ReadinessProbe, error) {
	text, named := annotations[health.ProbeAnnotation]
	if !named {
		return nil, nil
	}
	out := &networking.ReadinessProbe{}
	object, err := yaml.YAMLToJSONStrict([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(object, out)
	}
	if err != nil {
		return nil, fmt.Errorf("must be YAML with the fields of spec.probe of a WorkloadGroup, such as {httpGet: {port: 8080}}: %s", plain(err))
	}
	return out, nil
}

// plain is the text of an error without what protojson adds lest programs depend on it.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimPrefix(text, "proto: ")
}
