package member

import "sync"

// logLevels are the newest log levels of a child.
type logLevels struct {
	mu   sync.Mutex // guards the field below, and process.logLevels
	text string
}

// SetLogLevels changes what the child logs, in words of the function that it gives to RunChild.
// Processes that are started later have the levels too.
func (c *Child) SetLogLevels(text string) {
	c.logLevels.mu.Lock()
	defer c.logLevels.mu.Unlock()
	c.logLevels.text = text
	if p := c.current.Load(); p != nil {
		c.tell(p)
	}
}

// adopt makes a process the current one. The levels may have changed since it was started.
func (c *Child) adopt(p *process) {
	c.logLevels.mu.Lock()
	defer c.logLevels.mu.Unlock()
	c.current.Store(p)
	c.tell(p)
}

// tell requires mu.
func (c *Child) tell(p *process) {
	if p.logLevels != c.logLevels.text {
		p.logLevels = c.logLevels.text
		p.order(laterOrders{LogLevels: p.logLevels})
	}
}

// present returns the levels.
func (l *logLevels) present() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}
