package serve

import "testing"

func TestSurplus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own  int
		all  []int
		want int
	}{
		"the only server":                      {1000, []int{}, 0},
		"nobody has reported":                  {1000, nil, 0},
		"as many as the others":                {100, []int{100}, 0},
		"fewer":                                {10, []int{100}, 0},
		"a few more":                           {110, []int{90}, 0},
		"a tenth of what is beyond":            {200, []int{0}, 10},
		"at least one":                         {6, []int{0}, 1},
		"a handful is not worth moving":        {4, []int{0}, 0},
		"of three, one has nothing":            {60, []int{60, 0}, 2},
		"what the others have beyond is their": {40, []int{80, 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := countToDisconnect(c.own, c.all); got != c.want {
				t.Errorf("surplus(%d, %v) = %d, want %d", c.own, c.all, got, c.want)
			}
		})
	}
}
