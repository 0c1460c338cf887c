package objects

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kustomize builds a kustomization, and returns its objects as YAML.
func kustomize(dir string) ([]byte, error) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, unreadableAt("-k", dir, err)
	case !info.IsDir():
		return nil, fmt.Errorf("-k %s: is no directory: name that with the kustomization.yaml, or read the file with -f", dir)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("-k %s: %s", dir, strings.Join(strings.Fields(err.Error()), " "))
	}
	text, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("-k %s: %w", dir, err)
	}
	return text, nil
}
