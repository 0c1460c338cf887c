package schematest

import (
	"math"
	"strings"
)

// domain is the domain of an object's hosts, before the object joins a group.
const domain = ".odd.test"

// hosts are the hosts to draw, few enough that objects share them.
var hosts = []string{
	"h0.odd.test", "h1.odd.test", "h2.odd.test", "h3.odd.test", "h4.odd.test", "other.odd.test", "*.wild.odd.test", "a.wild.odd.test",
	"*.odd.test", "*", "H0.Odd.Test", "h0.odd.test.", "short", "10.1.0.1", "fd00::1", "*.a.wild.odd.test", "x--y.odd.test", "xn--bcher-kva.odd.test", "1.odd.test",
	strings.Repeat("l", 63) + ".odd.test", strings.Repeat("a.", 118) + "odd.test",
}

// texts are strange values for string fields.
var texts = []string{
	"", " ", "a", "A", "0", "-1", "*", "/", "//", "/a", "/a/", "/A%20b", "/%", "/%zz", "?", "/a?b=c", "/a#b", "..", "/../x", "{", "}", "{}", "[", "]", "(", "\\", "\\1", "\\9", "\\0", "/\\1/\\2", "$1",
	"%", "%%", "%START_TIME%", "%REQ(x)%", "%REQ(:authority)%", "%REQ(x?y):5%", "%DOWNSTREAM_REMOTE_ADDRESS%", "%UPSTREAM_METADATA(a:b)%", "%NO_SUCH_COMMAND%", "%START_TIME(%Y)%", "%RESPONSE_CODE%", "%HOSTNAME%", "%PROTOCOL%", "%DYNAMIC_METADATA(x)%", "%PER_REQUEST_STATE(x)%", "%ENVIRONMENT(HOME)%", "%TRAILER(x)%", "%COALESCE(1)%", "%START_TIME(%Y-%m-%d)%", "%METADATA(ROUTE:a:b)%", "%PATH(NQ)%", "%UPSTREAM_HOST%%%%UPSTREAM_CLUSTER%", "%FILTER_STATE(a:TYPED)%", "%FILTER_STATE(x:PLAIN)%", "%START_TIME(",
	"ünïcödé ✓ 🚀", "\u00a0", "\u202e", "\t", "a\tb", "a b", "a\nb", "a\rb", "a\x00b", "\x7f", "'", "\"", "`", ";", ",", "a,b", "a;b", "a=b", "&", "<x>", "|", "~", "@", ":", "::", "a:b", "#",
	":authority", ":path", ":method", ":scheme", ":status", "host", "Host", "x-a", "X-Upper", "x_under", "cookie", "connection", "te", "transfer-encoding", "content-length", "upgrade", "x-envoy-retry-on", "x-forwarded-for", "via",
	"http", "https", "HTTP", "GET", "get", "CONNECT", "5xx", "503", "100", "599", "gateway-error,connect-failure", "5xx, 503 ,reset", "cancelled", "reset,,", "999",
	"10.0.0.1", "0.0.0.0", "127.0.0.1", "255.255.255.255", "224.0.0.1", "::1", "::", "fe80::1", "::ffff:1.2.3.4", "fd00::ffff", "10.0.0.0/8", "10.1.2.3/8", "0.0.0.0/0", "::/0", "fd00::/64", "10.0.0.1/32", "fd00::1/128", "::ffff:10.0.0.0/104", "::ffff:1.2.3.4/128", "1.2.3.4/31",
	"unix:///run/x.sock", "unix://@abstract", "unix:///" + strings.Repeat("p", 120), "unix://@" + strings.Repeat("p", 120), "127.0.0.1:8080", "[::1]:8080", "0.0.0.0:80", "[::]:65535",
	"eu", "eu/", "/", "//", "eu/a/1", "/a/1", "eu//1", "eu/ünïcödé", ".", "mesh", "odd/edge", "./edge", "v1", "V1", "app", "odd", "localhost", "Strict", "SameSite", "Max-Age", "HttpOnly", "Secure",
	strings.Repeat("x", 63), strings.Repeat("x", 255), strings.Repeat("/long", 60), strings.Repeat("ü", 200), strings.Repeat("y", 5000), strings.Repeat("/z", 20000),
}

// expressions are values for regular expressions.
var expressions = []string{
	"a", ".*", "*", ".+", "", "^$", "^/a$", "(?i)abc", "(?s).", "(?P<n>a)(?P<m>b)", "a{1000}", "(a{1,30}){1,30}", "[a-z]{0,1000}", "((((((((((a))))))))))", "(a|b|c|d)+", "[[:alpha:]]+", "\\pL+", "\\p{Greek}", "\\d+\\w\\s", "\\bfoo\\b", "\\Qa.b\\E", "\\x{10FFFF}", "ü+", "🚀*", "a**", "a*?", "(?U)a+", "[^\\x00-\\x7f]", "\\C", "\\z", "\\A", "x{2}{3}", "(?:a|b)??", "(?-s).",
	"(x+x+)+y", "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)", "a\nb", "\\/", "\\-", "[\\d-z]", "(?i:a)", "(?m)^a$", "\\a\\f\\t\\n\\r\\v\\123\\x7F", "|", "()", "(|a)*", "[a-z&&[^b]]", "\\pN{3,999}", "(\\pL{2,100}){3}", "(\\pL|\\pN){0,900}",
	strings.Repeat("(", 60) + "a" + strings.Repeat(")", 60), strings.Repeat("a?", 200) + strings.Repeat("a", 200), strings.Repeat("[a-z]", 150), "(" + strings.Repeat("word|", 200) + "end)", strings.Repeat("\\pL", 300), strings.Repeat(".{0,9}", 100), "/" + strings.Repeat("(/[^/]+)", 100), strings.Repeat("x", 1024),
}

var (
	ports    = []uint64{8080, 8081, 9090, 9091, 18080, 1024, 1, 80, 443, 65535, 15001, 15006, 15021, 15090, 0, 65536}
	unsigned = []uint64{0, 1, 2, 3, 100, 251, 1024, 65537, 1 << 17, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32 - 1, math.MaxUint32, math.MaxInt64, math.MaxUint64}
	signed   = []int64{0, 1, 2, 10, 100, 1000, 1 << 20, math.MaxInt32, math.MaxInt32 - 1, -1, math.MinInt32, math.MaxInt64}
	floats   = []float64{0, 1, 50, 100, 0.0001, 99.9999, 100.1, -1, math.Inf(1), math.NaN(), math.MaxFloat64}
	// times are seconds and nanoseconds.
	times = [][2]int64{
		{0, 1000000}, {0, 999000000}, {0, 1}, {0, 0}, {1, 0}, {1, 1}, {1, 1000000}, {60, 0}, {3600, 0}, {86400, 0}, {4294967, 0}, {4294968, 0}, {2147483, 647000000}, {2147483, 648000000},
		{2147483647, 0}, {2147483648, 0}, {3153600000, 0}, {3153600000, 1000000}, {4294967295, 0}, {4294967296, 0}, {9223372036, 854000000}, {315576000000, 0}, {-1, 0}, {5, -1}, {0, -1000000},
	}
	// many are the numbers of elements to draw.
	many = []int{2, 3, 17, 130, 300}
)
