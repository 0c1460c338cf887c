package schema

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// celFunctions says with how many arguments Envoy 1.40 takes each function of CEL. A proxy refuses
// a whole listener over a function that it does not know. string, the macros that look at each
// element, and messages are switched off there.
var celFunctions = map[string][]int{
	"size": {1}, "int": {1}, "uint": {1}, "double": {1}, "bool": {1}, "type": {1}, "dyn": {1}, "duration": {1}, "timestamp": {1},
	"matches": {2}, "contains": {2}, "startsWith": {2}, "endsWith": {2},
}

// celMethods is celFunctions for what is called on a value.
var celMethods = map[string][]int{
	"size": {0}, "matches": {1}, "contains": {1}, "startsWith": {1}, "endsWith": {1},
	"getFullYear": {0, 1}, "getMonth": {0, 1}, "getDate": {0, 1}, "getDayOfMonth": {0, 1}, "getDayOfWeek": {0, 1}, "getDayOfYear": {0, 1},
	"getHours": {0, 1}, "getMinutes": {0, 1}, "getSeconds": {0, 1}, "getMilliseconds": {0, 1},
}

// celReserved are words that name nothing.
var celReserved = strings.Fields("as break const continue else for function if import in let loop package namespace return var void while")

// celDepth is how deep an expression may nest. Envoy takes deeper ones.
const celDepth = 32

// celToken matches the next token: a number, a text, a name or a sign.
var celToken = regexp.MustCompile(`^(?:` +
	`(?P<number>0x[0-9a-fA-F]+u?|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+u?)` +
	`|(?P<text>[rR]?[bB]?[rR]?(?:"""(?s:.*?)"""|'''(?s:.*?)'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))` +
	`|(?P<name>[A-Za-z_][A-Za-z0-9_]*)` +
	`|(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}]))`)

// CheckCEL says why a proxy would refuse an expression of CEL; nil if it takes it.
// (The grammar: cel-spec, doc/langdef.md.)
func CheckCEL(expression string) error {
	_, err := parseCEL(expression)
	return err
}

// parseCEL returns the attributes that an expression names, in its order.
func parseCEL(expression string) ([]celAttribute, error) {
	p := &celParser{rest: expression}
	if p.next(); p.err == nil && p.kind == "" {
		return nil, errors.New("is empty")
	}
	p.expression()
	if p.err == nil && p.kind != "" {
		p.unexpected()
	}
	return p.attributes, p.err
}

// celParser reads an expression by recursive descent. It stops at the first fault.
type celParser struct {
	rest        string
	kind, token string // of the current token; an empty kind is the end
	read        int    // how many tokens were read
	depth       int
	attributes  []celAttribute
	err         error
}

func (p *celParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	p.kind, p.token, p.rest = "", "", ""
}

func (p *celParser) unexpected() {
	if p.kind == "" {
		p.fail("ends too early")
		return
	}
	p.fail("has %s where it does not belong", p.token)
}

func (p *celParser) next() {
	p.read++
	p.kind, p.token = "", ""
	if p.rest = strings.TrimLeft(p.rest, " \t\r\n\f"); p.rest == "" {
		return
	}
	found := celToken.FindStringSubmatch(p.rest)
	if found == nil {
		p.fail("cannot be read from %s on", strconv.Quote(p.rest))
		return
	}
	for i, name := range celToken.SubexpNames() {
		if name != "" && found[i] != "" {
			p.kind, p.token = name, found[i]
		}
	}
	p.rest = p.rest[len(p.token):]
}

// take reads a sign or a word, and says whether it was there.
func (p *celParser) take(tokens ...string) bool {
	if p.kind == "text" || !slices.Contains(tokens, p.token) || p.token == "" {
		return false
	}
	p.next()
	return true
}

func (p *celParser) want(token string) {
	if !p.take(token) {
		p.unexpected()
	}
}

func (p *celParser) expression() {
	if p.depth++; p.depth > celDepth {
		p.fail("nests deeper than %d", celDepth)
	}
	if p.binary(0); p.take("?") {
		p.binary(0)
		p.want(":")
		p.expression()
	}
	p.depth--
}

// celOperators has the operators by how tightly they bind, the loosest first.
var celOperators = [][]string{{"||"}, {"&&"}, {"==", "!=", "<", "<=", ">", ">=", "in"}, {"+", "-"}, {"*", "/", "%"}}

func (p *celParser) binary(level int) {
	if level == len(celOperators) {
		p.unary()
		return
	}
	for p.binary(level + 1); p.take(celOperators[level]...); {
		p.binary(level + 1)
	}
}

func (p *celParser) unary() {
	for n := 0; p.take("!", "-"); n++ {
		if n > celDepth {
			p.fail("nests deeper than %d", celDepth)
		}
	}
	p.member()
}

// member reads a value with what is selected from it, and says whether the last was a field.
func (p *celParser) member() (field bool) {
	of := -1 // the index of the attribute whose member comes next
	if root := p.primary(); root != "" {
		of = len(p.attributes)
		p.attributes = append(p.attributes, celAttribute{root: root})
	}
	for ; ; of = -1 {
		switch {
		case p.take("."):
			name := p.name()
			if field = !p.take("("); !field {
				p.call(celMethods, name, p.list(")"))
			} else if of >= 0 {
				p.attributes[of].member = name
			}
		case p.take("["):
			if text := p.alone(); of >= 0 && len(text) > 2 && strings.ContainsRune(`"'`, rune(text[0])) {
				p.attributes[of].member = strings.Trim(text, text[:1])
			}
			p.want("]")
			field = false
		case p.kind == "sign" && p.token == "{":
			p.fail("makes a message, which proxies do not")
			return false
		default:
			return field
		}
	}
}

// alone reads an expression, and returns it if it is a text.
func (p *celParser) alone() string {
	kind, token, read := p.kind, p.token, p.read
	if p.expression(); kind != "text" || p.read != read+1 {
		return ""
	}
	return token
}

// name reads a name.
func (p *celParser) name() string {
	name := p.token
	if p.kind != "name" || slices.Contains(celReserved, name) {
		p.unexpected()
		return ""
	}
	p.next()
	return name
}

// primary reads a value. It returns the name of an attribute, and nothing for other values.
func (p *celParser) primary() (name string) {
	switch {
	case p.kind == "number":
		p.next()
	case p.kind == "text":
		p.next()
	case p.take("("):
		p.expression()
		p.want(")")
	case p.take("["):
		p.list("]")
	case p.take("{"):
		p.entries()
	default:
		p.take(".")
		name = p.name()
		switch {
		case !p.take("("):
			return name
		case name == "has":
			p.has()
		default:
			p.call(celFunctions, name, p.list(")"))
		}
	}
	return ""
}

// has reads the argument of the macro has, which is a field of something.
func (p *celParser) has() {
	if !p.member() {
		p.fail("asks has(...) of something that is no field: write has(request.useragent)")
		return
	}
	p.want(")")
}

// list reads expressions up to the sign that closes them.
func (p *celParser) list(closing string) (args celArguments) {
	for !p.take(closing) {
		if args.count > 0 {
			p.want(",")
		}
		args.count++
		args.last = p.alone()
		if p.err != nil {
			return args
		}
	}
	return args
}

// celArguments are those of a call.
type celArguments struct {
	count int
	last  string // the last one, if it is a text
}

// entries reads the entries of a map.
func (p *celParser) entries() {
	for n := 0; !p.take("}"); n++ {
		if n > 0 {
			p.want(",")
		}
		p.expression()
		p.want(":")
		p.expression()
		if p.err != nil {
			return
		}
	}
}

// call judges a call of a function.
func (p *celParser) call(known map[string][]int, name string, args celArguments) {
	counts, ok := known[name]
	switch {
	case p.err != nil:
	case name == "string":
		p.fail("calls string(), which proxies do not know: leave it out, they write any value as text")
	case !ok:
		p.fail("calls %s(), which proxies do not know", name)
	case !slices.Contains(counts, args.count):
		p.fail("calls %s() with %d arguments, which proxies do not take", name, args.count)
	case name == "matches" && args.last != "":
		if pattern := strings.TrimLeft(args.last, "rR"); len(pattern) > 1 && !strings.ContainsRune(pattern, '\\') {
			if _, err := regexp.Compile(pattern[1 : len(pattern)-1]); err != nil {
				p.fail("has a pattern that is no regular expression: %v", err)
			}
		}
	}
}
