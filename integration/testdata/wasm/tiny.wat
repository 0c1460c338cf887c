;; A proxy-wasm plugin (ABI 0.2.1): it adds the header x-wasm with the plugin's configuration to
;; each response, and passes each byte of a TCP client on in upper case. Configuration that begins with "!" is not
;; taken, and one with "?" makes each request end in a trap.
(module
  (import "env" "proxy_get_buffer_bytes" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_buffer_bytes" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
  (data (i32.const 16) "x-wasm")
  (global $top (mut i32) (i32.const 65536))   ;; of what the host was given
  (global $config (mut i32) (i32.const 0))
  (global $size (mut i32) (i32.const 0))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param $n i32) (result i32)
    (local $at i32)
    ;; The configuration stays at 65536; all else begins anew behind it.
    (local.set $at (global.get $top))
    (local.get $at))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.const 1))
  (func (export "proxy_on_configure") (param $ctx i32) (param $n i32) (result i32)
    (drop (call $get (i32.const 7) (i32.const 0) (local.get $n) (i32.const 0) (i32.const 4)))
    (global.set $config (i32.load (i32.const 0)))
    (global.set $size (i32.load (i32.const 4)))
    (global.set $top (i32.const 131072))
    (i32.ne (i32.load8_u (global.get $config)) (i32.const 33)))   ;; "!" first: not taken
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (if (i32.eq (i32.load8_u (global.get $config)) (i32.const 63)) (then unreachable))   ;; "?" first: a trap
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (drop (call $add (i32.const 2) (i32.const 16) (i32.const 6) (global.get $config) (global.get $size)))
    (i32.const 0))
  (func (export "proxy_on_new_connection") (param i32) (result i32) (i32.const 0))
  (func (export "proxy_on_downstream_data") (param $ctx i32) (param $n i32) (param $end i32) (result i32)
    (local $i i32) (local $at i32) (local $c i32)
    (if (i32.eqz (local.get $n)) (then (return (i32.const 0))))
    (drop (call $get (i32.const 2) (i32.const 0) (local.get $n) (i32.const 0) (i32.const 4)))
    (local.set $at (i32.load (i32.const 0)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (i32.load (i32.const 4))))
        (local.set $c (i32.load8_u (i32.add (local.get $at) (local.get $i))))
        (if (i32.and (i32.ge_u (local.get $c) (i32.const 97)) (i32.le_u (local.get $c) (i32.const 122)))
          (then (i32.store8 (i32.add (local.get $at) (local.get $i)) (i32.sub (local.get $c) (i32.const 32)))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    (drop (call $set (i32.const 2) (i32.const 0) (local.get $n) (local.get $at) (i32.load (i32.const 4))))
    (i32.const 0))
  (func (export "proxy_on_done") (param i32) (result i32) (i32.const 1))
  (func (export "proxy_on_delete") (param i32))
)
