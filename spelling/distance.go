// Package spelling measures how far apart two words are, for messages that guess what was meant. It
// decides nothing: how near is near enough depends on what is named.
package spelling

// Distance counts the insertions, deletions and replacements of bytes, and the exchanges of two
// neighbours, that make one word of the other, none of them at a place that was changed already
// (Damerau 1964; "optimal string alignment").
func Distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			cost = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				cost = min(cost, before[j-1]+1)
			}
			row[j+1] = cost
		}
	}
	return row[len(b)]
}
