// Package modules fetches the modules of WasmPlugins from web servers.
//
// Every server fetches each module once, verifies its SHA-256 sum, and keeps it in memory as long as
// a WasmPlugin needs it. The sum fixes the content, so all servers give proxies the same bytes.
//
// A WasmPlugin whose module is not there yet goes on as it was before: a Set knows the last version
// of each whose module was there.
package modules
