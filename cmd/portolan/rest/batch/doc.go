// Package batch has the JSON shapes of the batch endpoint of the config API: several
// operations that are done as one revision, or not at all.
//
//	POST /apis/portolan.io/v1/batches
//	{"apiVersion": "portolan.io/v1", "kind": "Batch", "message": "to v2", "operations": [
//	  {"verb": "apply", "object": {"apiVersion": "networking.istio.io/v1", ...}},
//	  {"verb": "delete", "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "namespace": "edge", "name": "old"}]}
//
// The object of a restore may have a creationTimestamp, which it keeps if the restore
// creates it, and the resourceVersion "0" (Absent) if it must not exist.
//
// The answer is a Result, with one entry per operation, in order. A refused batch is
// answered with a metav1.Status whose details.causes name each fault by a field that
// begins with operations[i]; Index splits it. With ?dryRun=All the answer is the same,
// but nothing is written. With ?dryRun=All&preview=proxies (or resources, or bodies) the
// answer also says what would differ (Preview).
package batch
