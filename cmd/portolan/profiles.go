package main

import (
	"net/http"
	"net/http/pprof"

	"github.com/portolan-mesh/portolan/cache/rest"
)

// profilesPath is where serve --pprof shows profiles, as Go's tools expect it.
const profilesPath = "/debug/pprof/"

// serveProfiles adds the profiles of this process to the API.
func serveProfiles(api *rest.Server) {
	for path, handler := range map[string]http.HandlerFunc{
		profilesPath:             pprof.Index,
		profilesPath + "cmdline": pprof.Cmdline,
		profilesPath + "profile": pprof.Profile,
		profilesPath + "symbol":  pprof.Symbol,
		profilesPath + "trace":   pprof.Trace,
	} {
		api.Handle(path, handler)
	}
}
