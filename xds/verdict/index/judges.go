package index

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/destination"
	"github.com/portolan-mesh/portolan/xds/verdict/routing"
	"github.com/portolan-mesh/portolan/xds/verdict/security"
	"github.com/portolan-mesh/portolan/xds/verdict/workload"
)

// judges are the functions that judge an object, by its kind.
var judges = map[string]func(*verdict.Judge, *config.Config){
	schema.VirtualService.Kind:        routing.VirtualService,
	schema.DestinationRule.Kind:       destination.DestinationRule,
	schema.Gateway.Kind:               routing.Gateway,
	schema.Ingress.Kind:               routing.Ingress,
	schema.Sidecar.Kind:               workload.Sidecar,
	schema.ServiceEntry.Kind:          workload.ServiceEntry,
	schema.WorkloadEntry.Kind:         workload.WorkloadEntry,
	schema.PeerAuthentication.Kind:    workload.PeerAuthentication,
	schema.ProxyConfig.Kind:           workload.ProxyConfig,
	schema.AuthorizationPolicy.Kind:   security.AuthorizationPolicy,
	schema.RequestAuthentication.Kind: security.RequestAuthentication,
	schema.MeshConfig.Kind:            security.MeshConfig,
	schema.Telemetry.Kind:             security.Telemetry,
	schema.EnvoyFilter.Kind:           security.EnvoyFilter,
	schema.WasmPlugin.Kind:            security.WasmPlugin,
	schema.Secret.Kind:                security.Secret,
	schema.TokenIssuer.Kind:           security.TokenIssuer,
	schema.RoleBinding.Kind:           security.RoleBinding,
	schema.Role.Kind:                  security.Role,
	schema.User.Kind:                  security.User,
}

// judgeObject returns the verdicts of an object, and in order the rows that they depend on. It
// returns none for nil. alone are the verdicts of the object's schema.
func (x *Index) judgeObject(object *config.Config, alone []verdict.Verdict) outcome {
	if object == nil {
		return outcome{}
	}
	j := verdict.NewJudge(&x.world, alone)
	if f := judges[object.Kind]; f != nil {
		f(j, object)
	}
	addShadowing(j, object)
	addAdvice(j, object)
	addCrossings(j, object)
	x.unbuilt.addVerdicts(j, object)
	x.registrations.addVerdicts(j, object)
	x.patches.addVerdicts(j, object)
	rows, verdicts := j.Outcome()
	return outcome{object, rows, verdicts, j.Addresses()}
}
