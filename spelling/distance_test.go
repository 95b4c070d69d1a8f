package spelling

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}, {"ab", "ba", 1}, {"grop", "grpo", 1},
		{"ca", "abc", 3}, {"abcd", "badc", 2}, {"a", "b", 1}} {
		require.Equal(t, c.want, Distance(c.a, c.b), "%q %q", c.a, c.b)
		require.Equal(t, c.want, Distance(c.b, c.a), "%q %q", c.b, c.a)
	}
}
