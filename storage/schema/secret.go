package schema

import (
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/secret"
)

func secretKind() *Schema {
	s := definition[*secret.Spec]{
		kind: Secret, plural: "secrets",
		codec:  config.JSON[secret.Spec](),
		stored: true,
		check:  checkSecret,
	}.schema()
	s.Internal = true
	return s
}

// soon is how long before its end a certificate is warned of.
const soon = 30 * 24 * time.Hour

func checkSecret(c checker, s *secret.Spec) {
	if s.Sealed != nil && s.Sealed.Box != nil && s.InClear() {
		c.at("sealed").fail("is what servers make of data: leave it out")
	}
	if s.Sealed != nil && !s.InClear() { // the data was checked when it was sealed
		checkExpiry(c.at("sealed", "certificates"), s.Sealed.Certificates)
		return
	}
	checkExpiry(c.at("data"), secret.Certificates(s.Entries()))
	secret.Check(s.Type, s.Entries(), func(name, format string, args ...any) {
		at := c.at("data")
		if _, text := s.StringData[name]; text {
			at = c.at("stringData")
		}
		if name != "" {
			at = at.key(name)
		}
		at.fail(format, args...)
	})
}

// checkExpiry warns of certificates that have ended, or end soon.
func checkExpiry(c checker, certificates []secret.Certificate) {
	now := time.Now()
	for _, one := range certificates {
		switch left := one.NotAfter.Sub(now); {
		case left <= 0:
			c.key(one.Entry).warn("%q ended on %s: renew it", one.Subject, one.NotAfter.Format(time.RFC3339))
		case left < soon:
			c.key(one.Entry).warn("%q ends on %s: renew it", one.Subject, one.NotAfter.Format(time.RFC3339))
		case now.Before(one.NotBefore):
			c.key(one.Entry).warn("%q is not valid before %s", one.Subject, one.NotBefore.Format(time.RFC3339))
		}
	}
}
