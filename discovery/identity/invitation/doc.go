// Package invitation has the texts that an operator hands to a machine before it has a
// certificate, such as a token with the pin of the servers' roots ([Pinned]).
package invitation
