package grpo

import (
	"fmt"
	"math"
	"strconv"

	"graft/rl"
)

// scaleEps keeps a group of equal rewards from dividing by zero.
const scaleEps = 1e-4

// largestReward is the largest magnitude whose square and the sum of such squares over a batch are
// finite. Beyond it the standard deviation is infinite and every advantage would be 0.
const largestReward = 1e100

// Advantages turns the rewards of complete groups, adjacent in rollouts, into advantages (TRL
// 1.16): A = (r − mean of the group)/(std + 1e-4), with n−1 in the standard deviation, which is the
// group's, the batch's, or left out. A row that no reward function judged takes part in neither
// and gets 0. With normalize_then_sum (GDPO) every reward function is normalised within its group
// first, their weighted sum over the batch. It returns reward, reward_std, frac_reward_zero_std and,
// for each reward function, rewards/<name>/mean and rewards/<name>/std.
func Advantages(rollouts []rl.Rollout, o *Options) (rl.Stats, error) {
	var stats rl.Stats
	groups, err := completeGroups(rollouts, o)
	if err != nil {
		return stats, err
	}
	if err := checkRewards(rollouts, o); err != nil {
		return stats, err
	}
	rewards := make([]float64, len(rollouts))
	for i := range rollouts {
		if rewards[i] = rollouts[i].Reward; !rollouts[i].Scored {
			rewards[i] = math.NaN()
		}
	}
	mean, std := moments(rewards)
	stats.Set("reward", zeroNaN(mean))
	stats.Set("reward_std", zeroNaN(std))

	zero := 0
	if o.MultiObjectiveAggregation == NormalizeThenSum {
		zero = decoupled(rollouts, groups, o)
	} else {
		zero = normalised(rollouts, rewards, groups, o.ScaleRewards, std)
	}
	stats.Set("frac_reward_zero_std", float64(zero)/float64(len(rollouts)))
	for k := range rollouts[0].Rewards {
		mean, std := moments(column(rollouts, k))
		stats.Set("rewards/"+o.rewardName(k)+"/mean", zeroNaN(mean))
		stats.Set("rewards/"+o.rewardName(k)+"/std", zeroNaN(std))
	}
	return stats, nil
}

// normalised sets advantages from one reward a row and counts rows whose scale is 0.
func normalised(rollouts []rl.Rollout, rewards []float64, groups [][2]int, scale string, batchStd float64) (zero int) {
	for _, g := range groups {
		mean, std := moments(rewards[g[0]:g[1]])
		by := std
		if scale == ScaleBatch {
			by = batchStd
		}
		for i := g[0]; i < g[1]; i++ {
			a := rewards[i] - mean
			if scale != ScaleNone {
				a /= by + scaleEps
			}
			rollouts[i].Advantage = zeroNaN(a)
			if math.Abs(by) <= 1e-8 {
				zero++
			}
		}
	}
	return zero
}

// decoupled is GDPO (normalize_then_sum).
func decoupled(rollouts []rl.Rollout, groups [][2]int, o *Options) (zero int) {
	sum := make([]float64, len(rollouts))
	for k := range rollouts[0].Rewards {
		values := column(rollouts, k)
		for _, g := range groups {
			mean, std := moments(values[g[0]:g[1]])
			for i := g[0]; i < g[1]; i++ {
				sum[i] += zeroNaN(float64(o.weight(k) * ((values[i] - mean) / (std + scaleEps))))
			}
		}
	}
	for i := range rollouts {
		if !rollouts[i].Scored {
			sum[i] = math.NaN()
		}
	}
	mean, std := moments(sum)
	for i := range rollouts {
		rollouts[i].Advantage = zeroNaN((sum[i] - mean) / (std + scaleEps))
		if math.Abs(std) <= 1e-8 {
			zero++
		}
	}
	return zero
}

// completeGroups finds groups of NumGenerations adjacent rollouts.
func completeGroups(rollouts []rl.Rollout, o *Options) ([][2]int, error) {
	if len(rollouts) == 0 {
		return nil, fmt.Errorf("grpo: no rollouts")
	}
	var out [][2]int
	for from := 0; from < len(rollouts); {
		to := from + 1
		for to < len(rollouts) && rollouts[to].Group == rollouts[from].Group {
			to++
		}
		if to-from != o.NumGenerations {
			return nil, fmt.Errorf("grpo: group %d has %d rollouts instead of num_generations %d", rollouts[from].Group, to-from, o.NumGenerations)
		}
		out = append(out, [2]int{from, to})
		from = to
	}
	return out, nil
}

// checkRewards holds the rewarder to its contract: the same number of rewards for every row, and a
// sum that agrees with them wherever the weights are known here.
func checkRewards(rollouts []rl.Rollout, o *Options) error {
	want := len(rollouts[0].Rewards)
	if o.RewardWeights != nil && len(o.RewardWeights) != want {
		return fmt.Errorf("grpo: %d reward_weights for %d reward functions", len(o.RewardWeights), want)
	}
	if o.RewardNames != nil && len(o.RewardNames) != want {
		return fmt.Errorf("grpo: %d names for %d reward functions", len(o.RewardNames), want)
	}
	for i := range rollouts {
		r := &rollouts[i]
		if len(r.Rewards) != want || want == 0 {
			return fmt.Errorf("grpo: completion %d of group %d has %d rewards, the first one %d; a rewarder gives every completion one of each reward function",
				r.Sample, r.Group, len(r.Rewards), want)
		}
		sum, scored := 0.0, false
		for k, v := range r.Rewards {
			if math.Abs(v) > largestReward {
				return fmt.Errorf("grpo: reward %s of completion %d of group %d is %g, want at most %g either way; scale it down",
					o.rewardName(k), r.Sample, r.Group, v, largestReward)
			}
			if !math.IsNaN(v) {
				sum, scored = sum+float64(o.weight(k)*v), true
			}
		}
		known := o.RewardWeights != nil || o.MultiObjectiveAggregation == NormalizeThenSum
		switch {
		case scored != r.Scored:
			return fmt.Errorf("grpo: completion %d of group %d is scored %t although its rewards are %v", r.Sample, r.Group, r.Scored, r.Rewards)
		case r.Scored && !(math.Abs(r.Reward) <= largestReward):
			return fmt.Errorf("grpo: the reward of completion %d of group %d is %g, want at most %g either way; scale the rewards or their weights down",
				r.Sample, r.Group, r.Reward, largestReward)
		case known && scored && math.Abs(sum-r.Reward) > 1e-6*(1+math.Abs(sum)):
			return fmt.Errorf("grpo: the reward of completion %d of group %d is %g, but reward_weights make %g of %v", r.Sample, r.Group, r.Reward, sum, r.Rewards)
		}
	}
	return nil
}

// weight is reward function k's.
func (o *Options) weight(k int) float64 {
	if o.RewardWeights == nil {
		return 1
	}
	return o.RewardWeights[k]
}

// rewardName is reward function k's.
func (o *Options) rewardName(k int) string {
	if o.RewardNames == nil {
		return strconv.Itoa(k)
	}
	return o.RewardNames[k]
}

func column(rollouts []rl.Rollout, k int) []float64 {
	out := make([]float64, len(rollouts))
	for i := range rollouts {
		out[i] = rollouts[i].Rewards[k]
	}
	return out
}

// moments are mean and standard deviation (n−1) of the entries that are not NaN; NaN where there
// are too few.
func moments(x []float64) (mean, std float64) {
	n := 0.0
	for _, v := range x {
		if !math.IsNaN(v) {
			mean += v
			n++
		}
	}
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	mean /= n
	for _, v := range x {
		if !math.IsNaN(v) {
			std += float64((v - mean) * (v - mean))
		}
	}
	if n < 2 {
		return mean, math.NaN()
	}
	return mean, math.Sqrt(std / (n - 1))
}

func zeroNaN(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
