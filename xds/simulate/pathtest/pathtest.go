// Package pathtest has paths that clients write in odd ways, and what Envoy makes of them before
// policies and routes see them. The simulation and real Envoys are held against the same table.
package pathtest

import (
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// Refused stands in a Case for a request that is answered with 400.
const Refused = "400"

// Case is a path as a client sends it, and as policies, routes and the destination see it.
type Case struct{ Path, None, Base, Merge, Decode string }

// At returns what is seen at a level of pathNormalization.
func (c Case) At(level meshv1alpha1.MeshConfig_ProxyPathNormalization_NormalizationType) string {
	switch level {
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_NONE:
		return c.None
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		return c.Merge
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		return c.Decode
	}
	return c.Base
}

// Levels are those of pathNormalization.
func Levels() []meshv1alpha1.MeshConfig_ProxyPathNormalization_NormalizationType {
	return []meshv1alpha1.MeshConfig_ProxyPathNormalization_NormalizationType{
		meshv1alpha1.MeshConfig_ProxyPathNormalization_NONE, meshv1alpha1.MeshConfig_ProxyPathNormalization_BASE,
		meshv1alpha1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES, meshv1alpha1.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES,
	}
}

// Cases is the table.
func Cases() []Case {
	same := func(path string) Case { return Case{path, path, path, path, path} }
	normal := func(path, normal string) Case { return Case{path, path, normal, normal, normal} }
	merged := func(path, merged string) Case { return Case{path, path, path, merged, merged} }
	refused := func(path string) Case { return Case{path, Refused, Refused, Refused, Refused} }
	return []Case{
		same("/"), same("/admin"), same("/Admin"), same("/admin/"), same("/admin;a=b"), same("/admin;/x"), same("/admin?q=/../x//y%2F"), same("/?/admin"),
		same("/...") /* no dot segment */, same("/.../x"), same("/..x"), same("/x.."), same("/a.b"), same("/%20"), same("/%c3%A4"), same("/admin%3Fx"), same("/admin%3b"), same("/admin%23x"),
		same("/admin%252e"), same("/%252e%252e/admin"), same("/!$&'()*+,-_~:=@"), same("/[x]"), same("/%"), same("/%4"), same("/%zz"), same("/%0g"), same("/%2"),
		merged("//admin", "/admin"), merged("/x//admin", "/x/admin"), merged("/admin//", "/admin/"), merged("///admin///x", "/admin/x"),
		{"//", "//", "//", "//", "//"}, {"///", "///", "///", "//", "//"}, // Envoy's own
		merged("//admin?a=//b", "/admin?a=//b"),
		normal("/./admin", "/admin"), normal("/x/../admin", "/admin"), normal("/x/y/../../admin", "/admin"), normal("/../admin", "/admin"), normal("/../../admin", "/admin"),
		normal("/admin/.", "/admin/"), normal("/admin/..", "/"), normal("/admin/x/..", "/admin/"), normal("/admin/../", "/"), normal("/x/./admin", "/x/admin"),
		normal("/.", "/"), normal("/..", "/"), normal("/./", "/"), normal("/../?q=/../x", "/?q=/../x"), normal("/admin/x/../..", "/"),
		normal("/%2e/admin", "/admin"), normal("/x/%2e%2e/admin", "/admin"), normal("/x/%2E%2e/admin", "/admin"), normal("/x/.%2e/admin", "/admin"), normal("/x/%2e./admin", "/admin"),
		normal("/%2e%2e%2e", "/..."), normal("/x%2e", "/x."), normal("/%61dmin", "/admin"), normal("/%41dmin", "/Admin"), normal("/ad%6Din", "/admin"), normal("/admin%2d%5f%7E", "/admin-_~"),
		normal("/%30%39", "/09"),
		{"/x//../admin", "/x//../admin", "/x/admin", "/x/admin", "/x/admin"}, {"//../admin", "//../admin", "/admin", "/admin", "/admin"},
		{"/..//admin", "/..//admin", "//admin", "/admin", "/admin"},
		{`/\admin`, `/\admin`, "//admin", "/admin", "/admin"}, normal(`/x\admin`, "/x/admin"), normal(`/x\..\admin`, "/admin"), normal(`/admin\`, "/admin/"), normal(`/x\.\admin`, "/x/admin"),
		{"/x%2Fadmin", "/x%2Fadmin", "/x%2Fadmin", "/x%2Fadmin", "/x/admin"}, {"/x%2fadmin", "/x%2fadmin", "/x%2fadmin", "/x%2fadmin", "/x/admin"},
		{"/%2Fadmin", "/%2Fadmin", "/%2Fadmin", "/%2Fadmin", "/admin"}, {"/x%5Cadmin", "/x%5Cadmin", "/x%5Cadmin", "/x%5Cadmin", "/x/admin"}, {"/x%5cadmin", "/x%5cadmin", "/x%5cadmin", "/x%5cadmin", "/x/admin"},
		{"/x%2F..%2Fadmin", "/x%2F..%2Fadmin", "/x%2F..%2Fadmin", "/x%2F..%2Fadmin", "/admin"}, {"/x%2F%2E%2e%5Cadmin", "/x%2F%2E%2e%5Cadmin", "/x%2F..%5Cadmin", "/x%2F..%5Cadmin", "/admin"},
		{"/x/..%2Fadmin", "/x/..%2Fadmin", "/x/..%2Fadmin", "/x/..%2Fadmin", "/admin"}, {"/x/%2e%2e%2fadmin", "/x/%2e%2e%2fadmin", "/x/..%2fadmin", "/x/..%2fadmin", "/admin"},
		{"/admin?a=%2F", "/admin?a=%2F", "/admin?a=%2F", "/admin?a=%2F", "/admin?a=%2F"}, same("/admin%252Fx"),
		normal(`/"<>^{|}`+"`", "/%22%3C%3E%5E%7B%7C%7D%60"),
		normal("/%%300", "/%2500"), normal("/%%30%30", "/%2500"), normal("/%%32e", "/%252e"), normal("/%2%65%2%65/admin", "/%252e%252e/admin"), normal("/%%61", "/%a"), normal("/%%61z", "/%az"), normal("/x/%%65/../%%65", "/x/%e"),
		refused("/\x80\xff"), refused("/ä"), refused("/?ä"), // by the parser of HTTP/1.1
		refused("/admin#"), refused("/admin#x"), refused("/#/../admin"), refused("/?q#x"),
		{"/%00", "/%00", Refused, Refused, Refused}, {"/admin%00.txt", "/admin%00.txt", Refused, Refused, Refused},
	}
}
