package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"graft/rl"
)

func TestProgramsAreNamedAsTheyWereCalled(t *testing.T) {
	for argv0, want := range map[string][2]string{
		"rltrain":                          {"rltrain", "serve"},
		"./rltrain":                        {"./rltrain", "./serve"},
		"bin/rl":                           {"bin/rl", "bin/serve"},
		"/tmp/go-build12/b001/exe/rltrain": {"go run ./cmd/rltrain", "go run ./cmd/serve"},
	} {
		rltrain, serve := calledAs(argv0)
		assert.Equal(t, want, [2]string{rltrain, serve})
	}
	if runtime.GOOS != "windows" {
		assert.Equal(t, `'it'\''s here'`, quoted("it's here"))
		assert.Equal(t, "'0.5*format:think'", quoted("0.5*format:think"), "a shell would look for files")
	}
}

// typed are the commands that a run says to type next, as arguments.
func typed(t *testing.T, said string) map[string][]string {
	t.Helper()
	_, next, found := strings.Cut(said, "next:\n")
	require.True(t, found, said)
	out := map[string][]string{}
	rltrain, _ := calledAs(os.Args[0])
	for _, line := range strings.Split(next, "\n") {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), rltrain+" "); ok {
			command, _, _ = strings.Cut(command, "   ")
			args := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(command))
			out[args[0]] = args
		}
	}
	return out
}

func TestWhatIsNextWorksAsPrinted(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "kept", "run")
	commands := typed(t, ok(t, quick(t, elsewhere, "--max-steps", "1", "--reward", "0.5*length:at_most=9")...).err)
	chat := rltrain(t, "1+1=\n", commands["chat"]...)
	assert.Equal(t, exitDone, chat.code, chat.err)
	assert.Contains(t, commands["chat"], elsewhere)
	measured := ok(t, commands["eval"]...).out
	assert.Contains(t, measured, "change", "beside its base")
	assert.Contains(t, measured, "length:at_most=9", "by the run's own rewards")
	to := filepath.Join(t.TempDir(), "adapter")
	ok(t, append(commands["export"][:3:3], to)...)

	runs := t.TempDir()
	demo := ok(t, "--runs", runs, "--max-steps", "1").err
	commands = typed(t, demo)
	assert.Equal(t, []string{"chat", "--runs", runs}, commands["chat"])
	assert.NotContains(t, commands, "eval", "its problems are in no file")
	for _, line := range strings.Split(demo, "\n") {
		if !strings.Contains(line, runs) && runtime.GOOS != "windows" { // where no sign goes on with a line in every shell
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 80, line)
		}
	}
}

func TestProseIsFoldedBetweenWords(t *testing.T) {
	assert.Equal(t, "one two\nthree\n\n  four", folded("one two three\n\n  four", 8))
	assert.Equal(t, "a\nverylongword\nb", folded("a verylongword b", 6))
	assert.Equal(t, "45/45 MiB", share(45<<20, 45<<20))
	assert.Equal(t, "12/30 GiB", share(12<<30, 30<<30))
}

func TestALiveLineTellsHowFarTheTrainingHalfIs(t *testing.T) {
	var p phase
	p.tell(rl.Progress{Sampled: 64})
	assert.Equal(t, 64, p.reached().Sampled)
	p.begin()
	require.True(t, p.running())
	p.tell(rl.Progress{Sampled: 64, Scored: 24, ToScore: 128, Trained: 16, ToTrain: 64})
	line := p.line("step 12/50")
	assert.True(t, strings.HasPrefix(line, "step 12/50 sampled 64/64 scored 24/128 trained 16/64 ━╌╌╌╌╌╌╌ "), line)
	assert.NotContains(t, line[len("step 12/50"):], "20.0 s")
	p.end()
	require.False(t, p.running())
	assert.Zero(t, p.reached(), "the next step begins anew")
	p.last.Store(int64(20 * time.Second))
	p.begin()
	p.tell(rl.Progress{ToScore: 8, ToTrain: 8})
	line = p.line("step 2/2")
	assert.Contains(t, line, "step 2/2 scored 0/8 trained 0/8", "rows that nobody samples")
	assert.Contains(t, line, "/20.0 s")
}

func TestACurveKeepsItsScale(t *testing.T) {
	assert.Equal(t, "0▕▁▂▅█▏1", curve([]float64{0, 0.2, 0.5, 1}, 30))
	assert.Equal(t, "0▕▁▂▏1", curve([]float64{0, 0.2}, 30), "what comes later does not move what came before")
	assert.Equal(t, "0▕▄▄▏1", curve([]float64{0.45, 0.46}, 30), "a small change looks small")
	assert.Empty(t, curve([]float64{0.5}, 6))
	assert.Equal(t, 9, utf8.RuneCountInString(curve(make([]float64, 100), 9)))
	for _, c := range []struct{ values, want []float64 }{
		{[]float64{2.31, 2.2}, []float64{2, 2.5}},
		{[]float64{2.31, 2.2, 2.4, 2.05}, []float64{2, 2.5}},
		{[]float64{2.31, 1.4}, []float64{1, 3}},
		{[]float64{-4.19}, []float64{-5, -4}},
		{[]float64{-4.19, -1.5}, []float64{-5, 0}},
		{[]float64{3}, []float64{3, 3.5}},
		{[]float64{1.2, 0.1}, []float64{0, 2}},
	} {
		low, high := curveRange(c.values)
		assert.InDeltaSlice(t, c.want, []float64{low, high}, 1e-12, "%v", c.values)
	}
}

func TestAnInterruptEndsTheAnswerThenTheProgram(t *testing.T) {
	var said bytes.Buffer
	s := listen(newTalk(&said))
	defer s.close()
	all, done := s.immediate()
	defer done()
	s.promise("stops after this step")
	one, end := s.answering(all)
	s.signals <- os.Interrupt
	<-one.Done()
	require.NoError(t, all.Err(), "only the answer ended")
	end()
	s.signals <- os.Interrupt
	<-all.Done()
	require.True(t, s.wanted())
	require.False(t, s.aborted())
	s.signals <- os.Interrupt
	<-s.ctx.Done()
	assert.Equal(t, "stops after this step\naborting\n", said.String())
}
