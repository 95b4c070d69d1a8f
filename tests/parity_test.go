package tests

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/infer"
	"graft/kernels"
	"graft/model"
	"graft/rl"
	"graft/weights"
)

const (
	parityRounds = 2 // settings drawn for each model
	paritySteps  = 2 // optimizer steps of a round: what is sampled after each is compared
)

// parityCounts is what a round compared, and the ways it went on the way.
type parityCounts struct {
	tokens, mismatch, witnessMismatch, stale int
	stats                                    infer.Stats
}

func (c *parityCounts) add(o parityCounts) {
	c.tokens, c.mismatch, c.witnessMismatch, c.stale = c.tokens+o.tokens, c.mismatch+o.mismatch, c.witnessMismatch+o.witnessMismatch, c.stale+o.stale
	c.stats.Preemptions += o.stats.Preemptions
	c.stats.CacheHits += o.stats.CacheHits
	c.stats.Forked += o.stats.Forked
	c.stats.BytesCopied += o.stats.BytesCopied
}

// TestSamplerAndTrainerAgree is the product's promise, over every family and whatever may differ
// between two runs: sampler and trainer compute the same bits for every token, before and after
// optimizer steps that move the adapter in place, and so does a second copy of the model on another
// number of threads.
func TestSamplerAndTrainerAgree(t *testing.T) {
	var all parityCounts
	rounds := 0
	for i, name := range parityModels() {
		t.Run(name, func(t *testing.T) {
			for round := range parityRounds {
				r := rand.New(rand.NewPCG(uint64(i), uint64(round)))
				c := playRound(t, name, r)
				require.Zero(t, c.mismatch, "of %d tokens, round %d", c.tokens, round)
				require.Zero(t, c.witnessMismatch, "of %d tokens, round %d, on other threads", c.tokens, round)
				require.Positive(t, c.stale, "the optimizer's step changed no log-prob")
				all.add(c)
				rounds++
			}
		})
	}
	t.Logf("%d tokens, %d preemptions, %d cached prompt tokens, %d forks, %d bytes of adapters kept for requests under way", all.tokens, all.stats.Preemptions, all.stats.CacheHits, all.stats.Forked, all.stats.BytesCopied)
	if rounds == parityRounds*len(parityModels()) {
		assert.Positive(t, all.stats.Preemptions, "pools were meant to be too small")
		assert.Positive(t, all.stats.CacheHits)
		assert.Positive(t, all.stats.Forked)
	}
}

// playRound samples, scores and moves an adapter under a random setting.
func playRound(t *testing.T, name string, r *rand.Rand) (c parityCounts) {
	ctx := context.Background()
	probe := openModel(t, name, 1)
	s := drawSetting(r, probe)
	t.Log(s)
	m, other := openModel(t, name, s.threads), openModel(t, name, s.witness)
	ad, err := m.NewAdapter(1, s.adapter, r.Uint64(), true)
	require.NoError(t, err)
	fill(m, ad, r)
	copied, err := other.NewAdapter(1, s.adapter, 0, false)
	require.NoError(t, err)
	require.Equal(t, ad.Params().Cols, copied.Params().Cols)

	reqs := drawRequests(r, s, m.Config.Vocab, ad)
	size := microSize(reqs, s.micro)
	size.Keep, size.Threads = s.keep, s.threads
	s.engine.Pages, s.engine.RankCols, s.engine.Threads = max(size.Pages, 8)+s.slack, ad.MaxCols(), s.threads
	e, err := infer.New(m, nil, s.engine)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	trainer := &rl.Policy{Model: m, Adapter: ad, Pages: e.Pages(), Pool: e.Pool(), InvT: float32(1 / s.temperature)}
	require.NoError(t, trainer.Allocate(size))
	witness := newWitness(t, other, copied, microSize(reqs, s.witnessMicro), s.temperature, s.witness)
	learner, err := rl.NewLearner(trainer, rl.DefaultAdamW(), rl.ScheduleOptions{Type: "constant", LearningRate: 0.01, TotalSteps: paritySteps})
	require.NoError(t, err)
	learner.Exclusive = e.Exclusive

	for step := range paritySteps + 1 {
		// The second half finds the first half's prompts in the cache, and both those of the last
		// version, which must not be used.
		rollouts, entropy := generate(t, e, reqs, 0)
		again, moreEntropy := generate(t, e, reqs, len(reqs))
		for i := range again {
			require.Equal(t, rollouts[i].Tokens, again[i].Tokens, "the same request gave another completion")
		}
		straggler, err := e.Submit(ctx, infer.Request{Prompt: reqs[0].Prompt, Params: infer.Params{MaxTokens: 60, Temperature: s.temperature, Adapter: ad}})
		require.NoError(t, err)
		begun, ok := straggler.Next(ctx)
		require.True(t, ok)
		version := ad.Version
		err = learner.Alone(ctx, func() error {
			trainer.ZeroGrads()
			random := func(logp []float32) error {
				g := rl.TokenGrad{DLogP: make([]float32, len(logp))}
				for i := range g.DLogP {
					g.DLogP[i] = r.Float32() - 0.5
				}
				return trainer.Accumulate(g)
			}
			logp, ent, err := scoreAll(trainer, again, s.micro, random)
			if err != nil {
				return err
			}
			c.mismatch += unequal(again, logp, ent, moreEntropy)
			if logp, ent, err = scoreAll(trainer, rollouts, s.micro, random); err != nil {
				return err
			}
			c.mismatch += unequal(rollouts, logp, ent, entropy)
			c.tokens += rl.Tokens(rollouts) + rl.Tokens(again)
			copy(copied.Params().F32(), ad.Params().F32())
			if step == paritySteps {
				return nil
			}
			if err := e.PrepareUpdate(ad); err != nil {
				return err
			}
			var stats rl.Stats
			if err := learner.Move(&stats); err != nil {
				return err
			}
			logp, _, err = scoreAll(trainer, rollouts, s.micro, random) // the backward gives the pages back
			c.stale += unequal(rollouts, logp, nil, nil)
			return err
		})
		require.NoError(t, err)
		for i := range rollouts {
			require.Equal(t, version, rollouts[i].Version)
		}
		// The witness still has the adapter that sampled, and so had what was under way meanwhile.
		logp, ent, err := scoreAll(witness, rollouts, s.witnessMicro, nil)
		require.NoError(t, err)
		c.witnessMismatch += unequal(rollouts, logp, ent, entropy)
		c.witnessMismatch += checkStraggler(t, begun, straggler, witness, reqs[0].Prompt, s)
	}
	c.stats = e.Stats()
	return c
}

// checkStraggler ends a request that had begun when the adapter moved, and counts the tokens
// that are not those of the version it began with.
func checkStraggler(t *testing.T, begun infer.Event, stream *infer.Stream, witness *rl.Policy, prompt []int32, s setting) int {
	t.Helper()
	done, err := stream.Collect(context.Background())
	require.NoError(t, err)
	c := &done[0]
	require.Equal(t, begun.Version, c.Version)
	c.Tokens, c.LogP, c.Entropy = append([]int32{begun.Token}, c.Tokens...), append([]float32{begun.LogP}, c.LogP...), append([]float32{begun.Entropy}, c.Entropy...)
	require.Len(t, c.Tokens, 60)
	one := []infer.Request{{Prompt: prompt}}
	rollouts := asRollouts(one, done, 0)
	size := rl.SizeOf(rollouts)
	p := newWitness(t, witness.Model, witness.Adapter, size, s.temperature, s.witness)
	logp, ent, err := p.Score(rollouts)
	require.NoError(t, err)
	return unequal(rollouts, logp, ent, [][]float32{done[0].Entropy})
}

// TestOneChangedValueIsSeen: the comparison above would notice a trainer that does not have the
// sampler's weights to the last value, and nothing else disturbs it: put back, all is equal again.
func TestOneChangedValueIsSeen(t *testing.T) {
	for _, name := range []string{"tiny", "llama-untied", "gemma3", "llama-Q4_0.gguf", "qwen3-Q8_0.gguf"} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 5))
			m := openModel(t, name, 2)
			s := setting{temperature: 1, micro: 4}
			ad, err := m.NewAdapter(1, weights.AdapterConfig{R: 4, Alpha: 8, TargetModules: []string{"all-linear"}}, 1, false)
			require.NoError(t, err)
			fill(m, ad, r)
			reqs := drawRequests(r, s, m.Config.Vocab, ad)
			e, err := infer.New(m, nil, infer.Options{Pages: 40, MaxSeqs: 8, RankCols: ad.MaxCols(), Threads: 2})
			require.NoError(t, err)
			rollouts, _ := generate(t, e, reqs, 0)
			require.NoError(t, e.Close())
			p := newWitness(t, m, ad, microSize(reqs, s.micro), 1, 2)
			count := func() int {
				logp, _, err := scoreAll(p, rollouts, s.micro, nil)
				require.NoError(t, err)
				return unequal(rollouts, logp, nil, nil)
			}
			require.Zero(t, count())

			pair, layer := ad.Pairs()[len(ad.Pairs())/2], m.Layers[len(m.Layers)/2]
			for what, change := range map[string]func() (undo func()){
				"adapter": func() func() { return changeLast(m, pair.B) },
				"matrix":  func() func() { return changeLast(m, layer.Down.W) },
				"norm": func() func() {
					w := layer.AttnNorm.W.F32()
					was := w[3]
					w[3] *= 1.5
					return func() { w[3] = was }
				},
			} {
				undo := change()
				n := count()
				t.Logf("one value of %s changed: %d of %d tokens differ", what, n, rl.Tokens(rollouts))
				assert.Positive(t, n, what)
				undo()
				require.Zero(t, count(), "%s is as it was", what)
			}
		})
	}
}

// changeLast changes a matrix's last number by a bit of the last byte it has in a file: the exponent
// of a float, or the weight of a block.
func changeLast(m *model.Model, w kernels.Weight) (undo func()) {
	raw := make([]byte, w.Out*w.Format.Bytes(w.In))
	m.Backend().Unpack(raw, w, 0)
	raw[len(raw)-1] ^= 1
	m.Backend().Pack(w, 0, raw)
	return func() {
		raw[len(raw)-1] ^= 1
		m.Backend().Pack(w, 0, raw)
	}
}
