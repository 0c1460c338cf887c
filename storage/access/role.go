package access

// Role is a set of rights. In the root namespace it is for the whole mesh, elsewhere for its
// own namespace.
type Role struct {
	Rules []Rule `json:"rules,omitempty"`
}

// Rule permits each of its verbs on each of its kinds.
type Rule struct {
	// Verbs are among Verbs, or All.
	Verbs []string `json:"verbs,omitempty"`
	// Kinds are names of kinds, such as virtualservices, or of other collections of the
	// config API, such as proxies; or All.
	Kinds []string `json:"kinds,omitempty"`
	// Namespaces narrows the rule to the objects of some namespaces, and Names to the objects
	// of some names; empty is all.
	Namespaces []string `json:"namespaces,omitempty"`
	Names      []string `json:"names,omitempty"`
	// Hosts narrows the rule to the objects all of whose hosts are among these names and
	// patterns, such as *.shop.example; empty is all. Such a rule is for writing alone.
	Hosts []string `json:"hosts,omitempty"`
}

// All stands for each verb, or each kind.
const All = "*"

// The verbs of rules. Reveal is to read the data of a secret. Administer is to look after the
// store and the server: snapshots, members, sealing keys, profiles. PatchSecurity is to write
// EnvoyFilters that open what policies close, beside Create or Update.
const (
	Get           = "get"
	List          = "list"
	Watch         = "watch"
	Create        = "create"
	Update        = "update"
	Delete        = "delete"
	Reveal        = "reveal"
	Administer    = "administer"
	PatchSecurity = "patch-security"
)

// Verbs returns all verbs of rules, without All.
func Verbs() []string {
	return []string{Get, List, Watch, Create, Update, Delete, Reveal, Administer, PatchSecurity}
}

// WritingVerbs returns the verbs that change objects.
func WritingVerbs() []string { return []string{Create, Update, Delete} }

// RoleBinding gives the rights of a role to users and groups. In the root namespace it gives
// them for the whole mesh, elsewhere within its namespace.
type RoleBinding struct {
	// Role is the name of a built-in role, of a Role of the root namespace, or of a Role of
	// the binding's namespace: the first of these that exists.
	Role     string    `json:"role,omitempty"`
	Subjects []Subject `json:"subjects,omitempty"`
}

// Subject is a user or a group.
type Subject struct {
	// Kind is SubjectUser or SubjectGroup.
	Kind string `json:"kind,omitempty"`
	Name string `json:"name,omitempty"`
}

// The kinds of subjects.
const (
	SubjectUser  = "User"
	SubjectGroup = "Group"
)

// Names that have a meaning of their own.
const (
	// LocalUser is the user of the server on its own machine, who may do everything.
	LocalUser = "local"
	// Authenticated is the group of all who have proved who they are.
	Authenticated = "authenticated"
	// Workloads is the group of all callers that have proved a SPIFFE identity.
	Workloads = "workloads"
)

// The built-in roles. No object has their names.
const (
	Viewer       = "viewer"
	Editor       = "editor"
	Admin        = "admin"
	SecretReader = "secret-reader"
	Issuer       = "token-issuer"
)

// BuiltIn returns the names of the built-in roles.
func BuiltIn() []string { return []string{Viewer, Editor, Admin, SecretReader, Issuer} }
