package patch

import networking "istio.io/api/networking/v1alpha3"

// Finding is something odd about an EnvoyFilter. Field is a path within its spec, such as
// configPatches[0].patch.value.typed_config.
type Finding struct{ Field, Message string }

// Check finds what is wrong with an EnvoyFilter. Faults are reasons to refuse it; with a warning a
// patch has no effect, or may not have the expected one.
func Check(spec *networking.EnvoyFilter) (faults, warnings []Finding) { return nil, nil }

// Weakens finds the patches that take security away, or change it: that remove, replace or merge
// into a filter that authenticates or authorizes, or a transport socket. A patch that only adds such
// a filter takes nothing away, and is not found.
func Weakens(spec *networking.EnvoyFilter) []Finding { return nil }
