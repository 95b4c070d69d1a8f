package rewards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// words collects what children say.
type words struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// spawn parses a py: or exec: spec and hears its child.
func spawn(t *testing.T, spec string) (*remote, *words) {
	t.Helper()
	f, err := Parse(spec)
	require.NoError(t, err)
	heard := &words{}
	r := f.(*remote)
	r.stderr = heard
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r, heard
}

func python(t *testing.T, function string) (*remote, *words) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing; install it to test py: rewards")
	}
	return spawn(t, "py:"+filepath.Join("testdata", "plugin.py")+":"+function)
}

func shell(t *testing.T, answers ...string) (*remote, *words) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a POSIX shell")
	}
	spec := "exec:sh testdata/program.sh"
	for _, a := range answers {
		spec += " '" + a + "'"
	}
	return spawn(t, spec)
}

func pair() []Sample {
	return []Sample{
		{Prompt: "p0", Completion: "a", CompletionIDs: []int32{0}, Columns: map[string]any{"answer": "a", "extra": 1}, Step: 7},
		{Prompt: "p1", Completion: "é\u2028漢", CompletionIDs: []int32{1}, Columns: map[string]any{"answer": "é\u2028漢"}, Step: 7, Index: 1, Truncated: true},
	}
}

func values(scores []Score) string { return fmt.Sprint(scores) }

func TestPythonSignatures(t *testing.T) {
	talk := pair()
	for i := range talk {
		talk[i].Messages = []map[string]any{{"role": "user", "content": "hi"}}
	}
	for _, c := range []struct {
		function string
		samples  []Sample
		want     string
	}{
		{"sees", pair(), "[1 1]"},
		{"chat", talk, "[2 4]"},
		{"narrow", pair(), "[1 3]"},
		{"mixed", append(pair(), pair()...), "[1 skip 2 0.5]"},
		{"single", append(pair()[:1:1], Sample{Completion: "x", Columns: map[string]any{"answer": "y"}}), "[1 skip]"},
		{"slow", pair(), "[1.5 1.5]"},
		{"slow_single", pair(), "[1 3]"},
	} {
		r, _ := python(t, c.function)
		for range 2 { // the second batch goes to the same process
			scores, err := r.Score(context.Background(), c.samples)
			require.NoError(t, err, c.function)
			assert.Equal(t, c.want, values(scores), c.function)
		}
		assert.EqualValues(t, 2, r.id, "%s: one process for both batches", c.function)
	}
}

func TestPythonPrintsGoToStderr(t *testing.T) {
	r, heard := python(t, "noisy")
	scores, err := r.Score(context.Background(), pair())
	require.NoError(t, err)
	assert.Equal(t, "[1 1]", values(scores))
	require.NoError(t, r.Close())
	for _, line := range []string{"imported", `{"id":1,"scores":[9]}`, "to stderr", "raw", "from a child"} {
		assert.Contains(t, heard.String(), "[reward "+r.Name()+"] "+line+"\n")
	}
}

func TestPythonBreachesAreTyped(t *testing.T) {
	for _, c := range []struct {
		function string
		kind     Kind
		index    int // of the sample at fault, -1 none
		says     []string
	}{
		{"scalar", KindCount, -1, []string{"1.0", "float", "2 samples"}},
		{"short", KindCount, -1, []string{"1 scores for 2 samples", "step 7"}},
		{"nan", KindNotFinite, 1, []string{"step 7 group 0 sample 1", "NaN"}},
		{"infinite", KindNotFinite, 0, []string{"-Inf"}},
		{"text", KindNotNumber, 0, []string{"'0.5'", "str"}},
		{"raises", KindRaised, -1, []string{"ZeroDivisionError", "plugin.py\", line 74", "in raises"}},
		{"leaves", KindCrash, -1, []string{"exit status 3", "goodbye"}},
		{"missing", KindStart, -1, []string{"no function 'missing'", "sees", "narrow"}},
		{"not_callable", KindStart, -1, []string{"no function 'not_callable'"}},
	} {
		r, _ := python(t, c.function)
		_, err := Run(context.Background(), []Weighted{{r, 1}}, pair(), 0)
		var own *Error
		require.ErrorAs(t, err, &own, c.function)
		assert.Equal(t, c.kind, own.Kind, "%s: %v", c.function, err)
		assert.NotContains(t, err.Error(), "driver", c.function)
		assert.Contains(t, err.Error(), "py:")
		for _, s := range c.says {
			assert.Contains(t, err.Error(), s, c.function)
		}
		if c.index < 0 {
			assert.Nil(t, own.Sample, c.function)
		} else {
			assert.Equal(t, c.index, own.Sample.Index, c.function)
		}
	}
}

func TestPythonSurvivesAnException(t *testing.T) {
	r, _ := python(t, "raises")
	for want := int64(1); want <= 3; want++ {
		_, err := r.Score(context.Background(), pair())
		require.Error(t, err)
		assert.Equal(t, want, r.id, "same process")
	}
}

func TestPythonImportErrorNamesTheLine(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing; install it to test py: rewards")
	}
	file := filepath.Join(t.TempDir(), "broken.py")
	require.NoError(t, os.WriteFile(file, []byte("x = 1\ndef f(:\n"), 0o600))
	r, _ := spawn(t, "py:"+file+":f")
	err := Prepare(context.Background(), []Weighted{{r, 1}})
	require.ErrorContains(t, err, "SyntaxError")
	assert.ErrorContains(t, err, "broken.py\", line 2")

	t.Setenv("GRAFT_PYTHON", "no-such-python")
	r, _ = spawn(t, "py:"+file+":f")
	err = Prepare(context.Background(), []Weighted{{r, 1}})
	assert.ErrorContains(t, err, "no-such-python")
}

// TestPythonDeadlineKillsTheGroup has the function start a process of its own and hang.
func TestPythonDeadlineKillsTheGroup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("reads process ids the POSIX way")
	}
	for _, how := range []string{"deadline", "cancel"} {
		r, _ := python(t, "hangs")
		require.NoError(t, r.Start(context.Background()))
		file := filepath.Join(t.TempDir(), "pids")
		samples := []Sample{{Completion: file}}
		ctx, cancel := context.WithCancel(context.Background())
		deadline := time.Duration(0)
		var pids []int
		if how == "deadline" {
			deadline = 3 * time.Second
		} else {
			go func() {
				waitForPIDs(file)
				cancel()
			}()
		}
		_, err := Run(ctx, []Weighted{{r, 1}}, samples, deadline)
		pids = waitForPIDs(file)
		require.Len(t, pids, 2)
		for _, pid := range pids {
			assert.Eventually(t, func() bool { return !alive(pid) }, 20*time.Second, 10*time.Millisecond, how)
		}
		cancel()
		if how == "cancel" {
			assert.ErrorIs(t, err, context.Canceled)
			continue
		}
		var own *Error
		require.ErrorAs(t, err, &own)
		assert.Equal(t, KindTimeout, own.Kind)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Contains(t, err.Error(), "3s")
	}
}

func waitForPIDs(file string) []int {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var a, b int
		data, _ := os.ReadFile(file)
		if n, _ := fmt.Sscan(string(data), &a, &b); n == 2 {
			return []int{a, b}
		}
	}
	return nil
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	state := strings.TrimSpace(string(out))
	return err == nil && state != "" && !strings.HasPrefix(state, "Z")
}

func TestChildIsStartedAgainOnce(t *testing.T) {
	r, _ := python(t, "leaves_once")
	samples := []Sample{{Completion: filepath.Join(t.TempDir(), "mark")}}
	_, err := r.Score(context.Background(), samples)
	var own *Error
	require.ErrorAs(t, err, &own)
	assert.Equal(t, KindCrash, own.Kind)
	scores, err := r.Score(context.Background(), samples)
	require.NoError(t, err)
	assert.Equal(t, "[1]", values(scores))

	r, _ = python(t, "leaves")
	for range 2 {
		_, err = r.Score(context.Background(), samples)
		require.ErrorContains(t, err, "exit status 3")
	}
	_, err = r.Score(context.Background(), samples)
	assert.ErrorContains(t, err, "2 times in a row")
	assert.Nil(t, r.proc, "no third process")
}

func TestProgramAnswers(t *testing.T) {
	r, heard := shell(t, `{"id":1,"scores":[1,null]}`, `{"scores":[0.25,true],"id":2}`)
	for _, want := range []string{"[1 skip]", "[0.25 1]"} {
		scores, err := r.Score(context.Background(), pair())
		require.NoError(t, err)
		assert.Equal(t, want, values(scores))
	}
	_, err := r.Score(context.Background(), pair())
	assert.ErrorContains(t, err, "exit status 4")
	assert.ErrorContains(t, err, "started in exec:sh", "the last words are shown")
	assert.Contains(t, heard.String(), "[reward exec:sh testdata/program.sh")
	require.NoError(t, r.Close())
	require.NoError(t, r.Close(), "twice")
	_, err = r.Score(context.Background(), pair())
	assert.ErrorContains(t, err, "after Close")
}

func TestProgramBreachesAreTyped(t *testing.T) {
	for answer, want := range map[string]struct {
		kind Kind
		says string
	}{
		`loading model`:                     {KindProtocol, `"loading model"`},
		``:                                  {KindProtocol, `no answer`},
		`{"scores":[1,1]}`:                  {KindProtocol, "no id"},
		`{"id":2,"scores":[1,1]}`:           {KindProtocol, "id 2"},
		`{"id":1}`:                          {KindProtocol, "neither scores nor an error"},
		`{"id":1,"scores":[1]}`:             {KindCount, "1 scores for 2 samples"},
		`{"id":1,"scores":[1,1,1]}`:         {KindCount, "3 scores for 2 samples"},
		`{"id":1,"scores":[1,NaN]}`:         {KindNotFinite, "sample 1: score is NaN"},
		`{"id":1,"scores":[-Infinity, 1]}`:  {KindNotFinite, "sample 0: score is -Inf"},
		`{"id":1,"scores":[1e999,1]}`:       {KindNotFinite, "sample 0"},
		`{"id":1,"scores":[1,"high"]}`:      {KindNotNumber, `sample 1: score is "high"`},
		`{"id":1,"scores":[[1],1]}`:         {KindNotNumber, "sample 0"},
		`{"id":1,"error":"no such answer"}`: {KindRaised, "no such answer"},
	} {
		r, _ := shell(t, answer)
		_, err := Run(context.Background(), []Weighted{{r, 1}}, pair(), 0)
		var own *Error
		require.ErrorAs(t, err, &own, answer)
		assert.Equal(t, want.kind, own.Kind, "%s: %v", answer, err)
		assert.Contains(t, err.Error(), want.says)
	}
}

func TestProgramThatIsMissing(t *testing.T) {
	r, _ := spawn(t, "exec:no-such-program-anywhere")
	err := Prepare(context.Background(), []Weighted{{r, 1}})
	var own *Error
	require.ErrorAs(t, err, &own)
	assert.Equal(t, KindStart, own.Kind)
	assert.True(t, errors.Is(err, exec.ErrNotFound))
}

// TestChildrenDieWithTheProcess kills a copy of this test binary that waits for a hanging reward.
func TestChildrenDieWithTheProcess(t *testing.T) {
	if file := os.Getenv("GRAFT_TEST_VICTIM"); file != "" {
		r, _ := python(t, "hangs")
		_, err := r.Score(context.Background(), []Sample{{Completion: file}})
		t.Fatalf("came back: %v", err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("reads process ids the POSIX way")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing; install it to test py: rewards")
	}
	file := filepath.Join(t.TempDir(), "pids")
	victim := exec.Command(os.Args[0], "-test.run", "^TestChildrenDieWithTheProcess$")
	victim.Env = append(os.Environ(), "GRAFT_TEST_VICTIM="+file)
	require.NoError(t, victim.Start())
	pids := waitForPIDs(file)
	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	require.Len(t, pids, 2)
	assert.Eventually(t, func() bool { return !alive(pids[0]) }, 20*time.Second, 10*time.Millisecond)
	if p, err := os.FindProcess(pids[1]); err == nil {
		_ = p.Kill() // what the user's function started is its own affair once this process is killed
	}
}

func TestPythonFileThatNeverLoads(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing; install it to test py: rewards")
	}
	file := filepath.Join(t.TempDir(), "slow.py")
	require.NoError(t, os.WriteFile(file, []byte("import time\ntime.sleep(1000)\n"), 0o600))
	r, _ := spawn(t, "py:"+file+":score")
	require.Equal(t, loadLimit, r.ready)
	r.ready = 50 * time.Millisecond
	err := Prepare(context.Background(), []Weighted{{r, 1}})
	var own *Error
	require.ErrorAs(t, err, &own)
	assert.Equal(t, KindTimeout, own.Kind)
	assert.ErrorContains(t, err, "slow.py:score: its file was not loaded within 50ms; move what takes long")
	assert.Nil(t, r.proc, "the child is gone")

	r, _ = spawn(t, "py:"+file+":score")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, r.Start(ctx), context.DeadlineExceeded, "the caller's own deadline holds as well")
}
