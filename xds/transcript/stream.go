package transcript

import "time"

// Traffic is what one stream has cost until now. Its JSON form is an API.
type Traffic struct {
	Responses int64 `json:"responses"`
	Resources int64 `json:"resources"`
	Bytes     int64 `json:"bytes"`
	Acks      int64 `json:"acks"`
	Refusals  int64 `json:"refusals"`
	// MeanTook is how long the client takes to answer a response, LongestTook the most that it
	// took.
	MeanTook    time.Duration `json:"meanTook"`
	LongestTook time.Duration `json:"longestTook"`
}

// Stream is one open stream of a client. It is safe for concurrent use.
type Stream struct {
	log     *Log
	traffic Traffic       // guarded by log.mu
	took    time.Duration // of all answers; guarded by log.mu
}

func (s *Stream) note(e Entry) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.add(e)
}

// Requested notes that the client has begun to ask for a type, or asks for other names of it.
func (s *Stream) Requested(of string, added, removed int) {
	s.note(Entry{Event: Requested, Type: of, Resources: added, Removed: removed})
}

// Sent notes a response.
func (s *Stream) Sent(of, nonce, version string, resources, removed, bytes int) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.traffic.Responses++
	s.traffic.Resources += int64(resources)
	s.traffic.Bytes += int64(bytes)
	s.log.add(Entry{Event: Sent, Type: of, Nonce: nonce, Version: version, Resources: resources, Removed: removed, Bytes: bytes})
}

// Acknowledged notes that the client took a response.
func (s *Stream) Acknowledged(of, nonce string, took time.Duration) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.traffic.Acks++
	s.answered(took)
	s.log.add(Entry{Event: Acknowledged, Type: of, Nonce: nonce, Took: took})
}

// Refused notes that the client refused a response. The message must not have secrets.
func (s *Stream) Refused(of, nonce, message string, took time.Duration) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.traffic.Refusals++
	s.answered(took)
	s.log.add(Entry{Event: Refused, Type: of, Nonce: nonce, Message: message, Took: took})
}

func (s *Stream) answered(took time.Duration) {
	s.took += took
	s.traffic.MeanTook = s.took / time.Duration(s.traffic.Acks+s.traffic.Refusals)
	s.traffic.LongestTook = max(s.traffic.LongestTook, took)
}

// Traffic returns what the stream has cost until now.
func (s *Stream) Traffic() Traffic {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.traffic
}
