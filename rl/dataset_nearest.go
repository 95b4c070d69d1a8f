package rl

import "strings"

// nearest finds the name that a person most likely meant, if one is near enough.
func nearest(name string, have []string) (string, bool) {
	best, limit := "", 1+len(name)/3
	for _, h := range have {
		d := distance(strings.ToLower(name), strings.ToLower(h))
		if strings.HasPrefix(strings.ToLower(h), strings.ToLower(name)) || strings.HasPrefix(strings.ToLower(name), strings.ToLower(h)) {
			d = min(d, 1) // "prompts" for "prompt", "ans" for "answer"
		}
		if d <= limit {
			best, limit = h, d-1
		}
	}
	return best, best != ""
}

// distance counts the insertions, deletions and replacements between two texts (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
