// Package invitation has the texts that an operator hands to a machine before it has a
// certificate: a token with the pin of the servers' roots ([Pinned]), and the invitation of an
// agent, which also has the servers and the machine's identity ([Invitation]).
package invitation
