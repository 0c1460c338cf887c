package serve

import (
	"net/http"
	"net/http/pprof"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
)

// ProfilesPath is the path of profiles in the config API, the path that Go's tools expect.
const ProfilesPath = "/debug/pprof/"

// serveProfiles adds the profiles of this process to the API.
func serveProfiles(api *rest.Server) {
	for path, handler := range map[string]http.HandlerFunc{
		ProfilesPath:             pprof.Index,
		ProfilesPath + "cmdline": pprof.Cmdline,
		ProfilesPath + "profile": pprof.Profile,
		ProfilesPath + "symbol":  pprof.Symbol,
		ProfilesPath + "trace":   pprof.Trace,
	} {
		api.Handle(path, handler)
	}
}
