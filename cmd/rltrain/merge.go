package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"graft/cmd/internal/launch"
	"graft/model"
	"graft/weights"
)

// merge writes the model with the adapter in it, loads that instead of the model, and compares its
// log-probs with those of the model beside the adapter, all under f32: a difference of contracts is
// not a loss of merging.
func (e *exportCmd) merge(c *console, s *session, dir string) error {
	m, ad := s.loaded.Model, s.adapter()
	lora, made := filepath.Join(dir, "adapter.gguf"), filepath.Join(dir, "merged.gguf")
	if err := m.SaveAdapterGGUF(ad, lora); err != nil {
		return err
	}
	ctx, done := c.stop.immediate()
	defer done()
	tuned, err := checkScores(ctx, s, ad)
	if err != nil {
		return err
	}
	bare, err := checkScores(ctx, s, nil)
	if err != nil {
		return err
	}
	s.unload() // one of the two models is in memory at a time
	if err := launch.Merge(s.source, lora, made, e.MergedWeights); err != nil {
		return err
	}
	o := e.modelOptions
	o.Model, o.Adapter = made, launch.NoAdapter
	back, err := o.open(c, launch.Answering, model.Options{})
	if err != nil {
		return fmt.Errorf("what was merged cannot be read back: %w", err)
	}
	defer back.close()
	if err := o.prepare(c, back, 1, min(checkLength, e.maxLen(back))); err != nil {
		return err
	}
	got, err := checkScores(ctx, back, nil)
	if err != nil {
		return err
	}
	apart, moved := meanApart(got, tuned), meanApart(bare, tuned)
	if lost(apart, moved) {
		return fmt.Errorf("the merged model's log-probs are %.4f from those of the model with its adapter on average, where the adapter itself moved them by %.4f: stored so, the adapter is lost; take --merged-weights f32", apart, moved)
	}
	if err := os.Rename(made, e.Output); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	c.talk.prose("%s: read back; its log-probs are %.5f from those of the model with its adapter on average, which moved them by %.5f", e.Output, apart, moved)
	fmt.Fprintln(c.out, e.Output)
	return nil
}

// unnoticed is a mean difference of log-probs, in nats, that no text shows.
const unnoticed = 0.02

// lost tells whether rounding took more of a merge than half of what the adapter did.
func lost(apart, moved float64) bool { return !(apart <= max(unnoticed, moved/2)) }

// checkScores are log-probs of tokens spread over the vocabulary.
func checkScores(ctx context.Context, s *session, ad *weights.Adapter) ([]float32, error) {
	logp, _, err := s.engine.Score(ctx, checkTokens(s), ad, 1)
	return logp, err
}

// meanApart is the mean absolute difference; the first token has no log-prob.
func meanApart(a, b []float32) float64 {
	sum := 0.0
	for i := 1; i < len(a); i++ {
		sum += math.Abs(float64(a[i]) - float64(b[i]))
	}
	return sum / float64(max(1, len(a)-1))
}
