// Package message has what all messages of Envoy are made with: how they are checked and
// packed, and the fields that many of them have alike.
package message
