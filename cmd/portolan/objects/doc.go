// Package objects has the commands about objects: apply, get, diff, describe, analyze, wait,
// delete, export, import, secret, and those about their history.
package objects
