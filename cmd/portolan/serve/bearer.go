package serve

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// endOf returns when a JWT that was verified expires; the zero time for a token that does not
// say so.
func endOf(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		End float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.End <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.End), 0)
}
