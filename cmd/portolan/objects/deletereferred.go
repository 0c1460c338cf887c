package objects

import (
	"context"
	"strings"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// maxReferred is of how many objects a delete asks the server who refers to them.
const maxReferred = 100

// referredTo names those of the objects to be deleted that others refer to, and begins what becomes
// of these: dangling, messages that begin with the object that refers. The server tells who refers to
// each of several objects.
func (e *environment) referredTo(ctx context.Context, documents []config.Document, dangling []string) string {
	if len(documents) == 1 {
		return documents[0].Config.Key().String() + ". Without it"
	}
	unexplained := map[string]bool{}
	for _, message := range dangling {
		from, _, _ := strings.Cut(message, ": ")
		unexplained[from] = true
	}
	referring := len(unexplained)
	var named []string
	if len(documents) <= maxReferred {
		// Without an answer the objects that refer are named alone.
		_ = e.Call(ctx, func(ctx context.Context, c *client.Client) error {
			explained := map[string]bool{}
			for _, d := range documents {
				var to admin.References
				if err := c.JSON(ctx, admin.ReferencesPath+"?"+changeOf(d.Config.Key()).Encode(), &to); err != nil {
					return err
				}
				referred := false
				for _, r := range to.From {
					if unexplained[r.Object] {
						referred, explained[r.Object] = true, true
					}
				}
				if referred {
					named = append(named, d.Config.Key().String())
				}
			}
			referring -= len(explained)
			return nil
		})
	}
	switch {
	case len(named) == 0:
		return "objects that would go. Without them"
	case referring > 0: // the server does not tell all references
		return "objects that would go, such as " + strings.Join(named, ", ") + ". Without them"
	case len(named) > 1:
		return strings.Join(named, ", ") + ". Without them"
	}
	return named[0] + ". Without it"
}
