// Package security judges secrets, policies about requests, Telemetries, which select as these do,
// EnvoyFilters, and the objects that say who may use the config API.
package security

import "github.com/portolan-mesh/portolan/xds/verdict"

// judge judges one object.
type judge struct{ *verdict.Judge }
