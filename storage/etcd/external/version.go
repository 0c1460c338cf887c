package external

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// oldest is the oldest usable etcd.
var oldest = version.MustParseSemantic("3.5.0")

// sound are the first releases without the flaws below, by minor version. Later
// minor versions never had them.
// https://github.com/etcd-io/etcd/security/advisories/GHSA-xg4h-6gfc-h4m8
// https://pkg.go.dev/go.etcd.io/etcd/client/pkg/v3@v3.7.0?tab=versions
var sound = map[uint]*version.Version{
	5: version.MustParseSemantic("3.5.33"),
	6: version.MustParseSemantic("3.6.14"),
	7: version.MustParseSemantic("3.7.1"),
}

const advisories = "a user who may read one key can watch all that follow it (GHSA-xg4h-6gfc-h4m8), " +
	"and TLS handshakes that nobody ends use it up (GHSA-6vch-q96h-7gc3)"

// JudgeVersion says whether a release of etcd can be used; err says why not. flaw, in
// words for an operator, says why a usable one should be replaced by a later one.
func JudgeVersion(release string) (flaw string, err error) {
	v, err := version.ParseSemantic(release)
	if err != nil {
		return "", fmt.Errorf("etcd calls its version %q: %w", release, err)
	}
	if v.LessThan(oldest) {
		return "", fmt.Errorf("etcd %s is too old: version %s at least is needed", release, oldest)
	}
	if fixed, ok := sound[v.Minor()]; ok && v.Major() == 3 && v.LessThan(fixed) {
		return fmt.Sprintf("etcd %s has known flaws: %s: upgrade it to %s or later", release, advisories, fixed), nil
	}
	return "", nil
}

// versionsEvery is how often the cluster asks members for their versions.
const versionsEvery = 10 * time.Minute

// checkVersions asks each member for its version. It skips members that do not answer.
// It logs each flaw once, and returns an error for a version that cannot be used.
func (c *Cluster) checkVersions(ctx context.Context) error {
	releases := make([]string, len(c.o.Dial.Endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range c.o.Dial.Endpoints {
		asking.Go(func() {
			answer, err := c.client.Status(ctx, endpoint)
			if err != nil {
				c.o.Logger.Debug("a member of etcd cannot be asked for its version", "endpoint", endpoint, "err", err)
				return
			}
			releases[i] = answer.Version
		})
	}
	asking.Wait()
	var old []string
	for i, endpoint := range c.o.Dial.Endpoints {
		if releases[i] == "" {
			continue
		}
		flaw, err := JudgeVersion(releases[i])
		if err != nil {
			old = append(old, fmt.Sprintf("%s: %v", endpoint, err))
		}
		if flaw != "" && !c.flaws[releases[i]] {
			c.flaws[releases[i]] = true
			c.o.Logger.Warn(flaw, "endpoint", endpoint)
		}
	}
	if len(old) == 0 {
		return nil
	}
	words := strings.Join(old, "; ")
	return &refusalError{words: words, cause: errors.New(words)}
}
