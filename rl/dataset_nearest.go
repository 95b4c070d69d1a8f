package rl

import (
	"graft/spelling"
	"strings"
)

// nearest finds the name that a person most likely meant, if one is near enough.
func nearest(name string, have []string) (string, bool) {
	best, limit := "", 1+len(name)/3
	for _, h := range have {
		d := spelling.Distance(strings.ToLower(name), strings.ToLower(h))
		if strings.HasPrefix(strings.ToLower(h), strings.ToLower(name)) || strings.HasPrefix(strings.ToLower(name), strings.ToLower(h)) {
			d = min(d, 1) // "prompts" for "prompt", "ans" for "answer"
		}
		if d <= limit {
			best, limit = h, d-1
		}
	}
	return best, best != ""
}
