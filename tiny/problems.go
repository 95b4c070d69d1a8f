// Package tiny is the embedded model and the task it is tuned on: sums and differences of numbers
// below a hundred. It may know no trainer; the recipe that made the model is the program tiny/recipe.
package tiny

import (
	"fmt"

	"graft/kernels/rng"
)

// Problem is one question with its only right answer.
type Problem struct {
	Prompt string // what the user says: "37+58="
	Answer string // what the assistant should say: "95"
}

// limit is one above the largest operand.
const limit = 100

// all is every problem, in a fixed order.
func all() []Problem {
	var out []Problem
	for a := range limit {
		for b := range limit {
			out = append(out, Problem{fmt.Sprintf("%d+%d=", a, b), fmt.Sprint(a + b)})
			if a >= b {
				out = append(out, Problem{fmt.Sprintf("%d-%d=", a, b), fmt.Sprint(a - b)})
			}
		}
	}
	return out
}

// Problems draws n different problems of a split, "train" or "test"; n beyond what there is gives
// all. A fifth of the problems are held out for "test", always the same fifth: training never sees
// them. The seed decides order and choice only.
func Problems(split string, seed uint64, n int) []Problem {
	hold := rng.New(0, "tiny held out")
	var pool []Problem
	for i, p := range all() {
		if (hold.Below(5, uint32(i), 0, 0) == 0) == (split == "test") {
			pool = append(pool, p)
		}
	}
	order := rng.New(seed, "tiny "+split).Permutation(len(pool), 0)
	out := make([]Problem, 0, min(n, len(pool)))
	for _, i := range order[:min(n, len(pool))] {
		out = append(out, pool[i])
	}
	return out
}
