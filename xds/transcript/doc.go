// Package transcript keeps what was said on the streams of clients: the last entries for each
// client, and what its streams have cost. An entry has counts and names of responses, and nothing of
// their resources.
package transcript
