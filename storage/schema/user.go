package schema

import (
	"strings"
	"unicode"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
)

func userKind() *Schema {
	s := definition[*access.User]{
		kind: User, plural: "users",
		codec:  config.JSON[access.User](),
		served: serve("groups", "disabled", "tokens"),
		check:  checkUser,
	}.schema()
	s.Internal = true
	return s
}

func checkUser(c checker, s *access.User) {
	if name := c.report.object.Name; name == access.LocalUser {
		c.report.at("metadata").at("name").fail("is %q, which is the user of the server on its own machine: take another name", name)
	}
	each(c.at("groups"), s.Groups, checker.principal)
	unique(c.at("groups"), s.Groups, identity)
	each(c.at("groups"), s.Groups, func(c checker, group string) {
		if group == access.Authenticated || group == access.Workloads {
			c.fail("is %q, which is no group that somebody is put into: leave it out", group)
		}
	})
	each(c.at("tokens"), s.Tokens, func(c checker, t access.Token) {
		c.at("id").required(t.ID)
		c.at("id").oneLine(t.ID)
		c.at("note").oneLine(t.Note)
	})
	unique(c.at("tokens"), s.Tokens, func(t access.Token) string { return t.ID }, "id")
}

// maxPrincipal bounds the name of a user or of a group.
const maxPrincipal = 253

// principal checks the name of a user or of a group, which another program may have given.
func (c checker) principal(name string) {
	switch {
	case name == "":
		c.fail("is missing: name one")
	case len(name) > maxPrincipal:
		c.fail("has %d bytes, and may have %d", len(name), maxPrincipal)
	case strings.ContainsFunc(name, unicode.IsControl):
		c.fail("%q is not one line of text", name)
	}
}
