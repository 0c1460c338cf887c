package mirror

import "context"

// Compare is one check.
func (c *Cache) Compare(ctx context.Context, values bool) error { return c.compare(ctx, values) }
