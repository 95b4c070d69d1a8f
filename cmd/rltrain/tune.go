package main

import (
	"context"
	"fmt"

	"graft/rl"
)

// tuning is a run on given rows: DPO and SFT.
type tuning struct {
	*training
	rows    int
	held    int // rows that are measured
	what    string
	measure func(ctx context.Context) (float64, error)
	connect func() (trainer, error)
}

// run is the whole run, from plan to summary.
func (u *tuning) run(ctx context.Context) error {
	if err := u.trained(); err != nil {
		return err
	}
	u.sizes.least = u.sizes.policy.Pages
	if _, err := u.fit(nil); err != nil {
		return err
	}
	if err := u.rehearse(fmt.Sprintf("%d rows", u.rows)); err != nil {
		return err
	}
	tok := u.session.source.Files.Tokenizer
	if err := u.openLog(func(ids []int32) string { return tok.Decode(ids, false) }); err != nil {
		return err
	}
	u.c.talk.prose("%s: %s, %s, %d rows, %d steps, on %s, precision %s\nrun: %s", u.command, u.session.source.Model, u.lora.describe(u.c), u.rows, u.optim.MaxSteps,
		u.session.backend.Name(), u.session.source.Files.Precision(), u.log.Dir())
	if err := u.load(nil); err != nil {
		return err
	}
	var err error
	if u.trainer, err = u.connect(); err != nil {
		return err
	}
	u.idle = func() bool { return true }
	if err := u.start(u.early); err != nil {
		return u.stoppedEarly(err)
	}
	if err := u.loopSteps(ctx); err != nil {
		return err
	}
	u.graph()
	return u.report(ctx)
}

// start restores a resumed run, or measures a fresh one and saves its beginning.
func (u *tuning) start(ctx context.Context) error {
	if u.resume != nil {
		if err := u.restore(); err != nil {
			return err
		}
		u.c.talk.say("resumed at step %d of %d", u.trainer.Steps(), u.optim.MaxSteps)
		return nil
	}
	if u.held > 0 {
		before, err := u.measure(ctx)
		if err != nil {
			return err
		}
		u.total.evalBefore, u.total.evaluated = before, true
		u.c.talk.prose("before: %s %.4f on %d held-out rows", u.what, before, u.held)
	}
	return u.save(ctx)
}

func (u *tuning) report(ctx context.Context) error {
	var after *float64
	if u.held > 0 {
		v, err := u.measure(ctx)
		if err != nil {
			return err
		}
		after = &v
		u.c.talk.prose("%s on %d held-out rows: %.4f → %.4f", u.what, u.held, u.total.evalBefore, v)
	}
	if err := u.finish(after); err != nil {
		return err
	}
	u.c.talk.prose("%d steps in %.0f s, %.0f tokens trained, memory %s planned, %s resident at most", u.trainer.Steps(), u.total.seconds, u.total.trained,
		sized(u.session.plan.Total()), sized(u.session.resident()))
	u.next()
	return nil
}

// rendered tells what was left out of a dataset.
func (t *training) skipped(n, rows int) {
	if n > 0 {
		t.c.talk.say("%d of %d rows are skipped: too long", n, rows)
	}
}

// maxLength is the most tokens of a row: the option, or what the model is loaded for.
func (t *training) maxLength(option int) (int, error) {
	limit := t.model.maxLen(t.session)
	if option > limit {
		return 0, usage("--max-length %d: the model is loaded for %d positions; raise --max-model-len", option, limit)
	}
	if option == 0 {
		return min(limit, 1024), nil
	}
	return option, nil
}

// feed makes the endless order of rows and ties it to checkpoints.
func feed[T any](t *training, items []T, shuffle bool) (*rl.Feed[T], error) {
	f, err := rl.NewFeed(items, t.run.Seed, shuffle)
	if err != nil {
		return nil, err
	}
	t.cursor, t.seek = f.Cursor, f.Seek
	return f, nil
}

func longestOf[T any](items []T, length func(T) int) int {
	n := 0
	for _, i := range items {
		n = max(n, length(i))
	}
	return n
}

func rowsText(n int, what string, tokens int) string {
	return fmt.Sprintf("%d %s of up to %d tokens", n, what, tokens)
}
