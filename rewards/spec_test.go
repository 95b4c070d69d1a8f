package rewards

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseAllReadsWeights(t *testing.T) {
	all, err := ParseAll([]string{"math", "0.5*format:think", " -1e-1 * regex:a*0.5 ", "regex:^2*3$"})
	require.NoError(t, err)
	var names []string
	var weights []float64
	for _, w := range all {
		names = append(names, w.Func.Name())
		weights = append(weights, w.Weight)
	}
	assert.Equal(t, []string{"math", "format:think", "regex:a*0.5", "regex:^2*3$"}, names)
	assert.Equal(t, []float64{1, 0.5, -0.1, 1}, weights)
	assert.NoError(t, Close(all))
}

func TestParseErrorsNameTheRemedy(t *testing.T) {
	for spec, says := range map[string][]string{
		"maths":                             {`"maths"`, "did you mean math?", "repetition", "exec"},
		"":                                  {"no name", "math"},
		"zzzzzzzz":                          {"there are: math"},
		"math*0.5":                          {"stands in front: 0.5*math"},
		"x*math":                            {"not a finite number"},
		"nan*math":                          {"not a finite number"},
		"math:answer,last=off":              {`unknown argument "last"`, "last_number", "syntax: math"},
		"math:answer,last_number=maybe":     {"give on or off"},
		"math:a,b":                          {`argument "b" has no key`},
		"math:column=a,column=b":            {"given twice"},
		"math:column=":                      {"is empty"},
		"format:thinks":                     {"give one of think, xml"},
		"format:tags=a+<b>":                 {"no element name"},
		"format:tags=a+a":                   {"given twice"},
		"format:think,tags=a":               {"either a style or tags"},
		"regex:(":                           {"missing closing", "RE2"},
		"regex:(?=a)":                       {"look-around"},
		"regex":                             {"pattern is missing"},
		"regex_full:)":                      {"RE2"},
		"exact:normalize=all":               {"space, case, off"},
		"length":                            {"either a target"},
		"length:0":                          {"at least 1"},
		"length:5,at_most=7":                {"either a target"},
		"length:at_least=9,at_most=7":       {"no length would do"},
		"length:5,unit=bytes":               {"tokens, chars, words"},
		"length:99999999999":                {"whole number"},
		"soft_overlong":                     {"missing"},
		"soft_overlong:5,6":                 {"more than"},
		"repetition:0":                      {"at least 1"},
		"repetition:3,1":                    {"would reward repetition"},
		"cosine":                            {"missing"},
		"cosine:10,min_value_wrong=inf":     {"finite number"},
		"cosine:10,min_value_wrong=0":       {"more than max_value_wrong"},
		"reasoning_accuracy:delimiters=a||": {"delimiter is empty"},
		"py:":                               {"missing"},
		"py:reward.py":                      {"py:reward.py:FUNCTION"},
		"py:no_such_file.py:f":              {"no_such_file.py"},
		"py:testdata/plugin.py:f*2":         {"stands in front"},
		"py:a-b:f":                          {"neither a .py file nor a module"},
		"reward.py:f":                       {"did you mean py:reward.py:f?"},
		"exec:":                             {"command is missing"},
		"exec:a 'b":                         {"not closed"},
	} {
		_, err := ParseAll([]string{spec})
		if assert.Error(t, err, spec) {
			for _, s := range says {
				assert.Contains(t, err.Error(), s, spec)
			}
		}
	}
	_, err := ParseAll([]string{"math", "2*math"})
	assert.ErrorContains(t, err, "given twice")
}

func TestDescribeMatchesParse(t *testing.T) {
	arguments := map[string]string{"cosine": ":9", "regex": ":a", "regex_full": ":a", "length": ":9", "soft_overlong": ":9",
		"py": ":json:dumps", "exec": ":true"}
	for _, info := range Describe() {
		assert.True(t, strings.HasPrefix(info.Syntax, info.Name), info.Name)
		assert.NotEmpty(t, info.Doc)
		assert.NotContains(t, info.Doc, "\n")
		f, err := Parse(info.Name + arguments[info.Name])
		if assert.NoError(t, err, info.Name) {
			assert.NoError(t, f.Close())
		}
	}
}

func TestPlainRewards(t *testing.T) {
	row := func(text string, answer any) Sample {
		return Sample{Completion: text, Columns: map[string]any{"answer": answer}, CompletionIDs: make([]int32, len(text))}
	}
	for _, c := range []struct {
		spec string
		s    Sample
		want float64
	}{
		{"format:xml", row("<reasoning>\na\n</reasoning>\n<answer>b</answer>\n", ""), 1},
		{"format:xml", row("<reasoning>a</reasoning> so <answer>b</answer>", ""), 0},
		{"format:xml", row("<answer>b</answer><reasoning>a</reasoning>", ""), 0},
		{"format:xml", row("<reasoning>a</reasoning><answer>b</answer><answer>c</answer>", ""), 0},
		{"format:xml", row("<reasoning>a<answer></reasoning>b</answer>", ""), 0},
		{"format:tags=plan+code", row("<plan>a</plan><code>b</code>", ""), 1},
		{"format:tags=plan+code", row("<plan>a</plan>", ""), 0},
		{"regex:^b,c=d$", row("a\nb,c=d", ""), 0},
		{"regex:(?m)^b,c=d$", row("a\nb,c=d", ""), 1},
		{"regex_full:a.b|c", row("a\nb", ""), 1},
		{"regex_full:a.b|c", row("xc", ""), 0},
		{"exact", row(" the  answer\n", "the answer"), 1},
		{"exact", row("The answer", "the answer"), 0},
		{"exact:answer,normalize=case", row("The answer", "the answer"), 1},
		{"exact:normalize=off", row("the answer ", "the answer"), 0},
		{"exact", row("12", 12), 1},
		{"exact", row("12.5", 12.5), 1},
		{"length:10", row("1234567890", ""), 1},
		{"length:10", row("12345", ""), 0.5},
		{"length:10", row("12345678901234567890x", ""), 0},
		{"length:at_most=3", row("123", ""), 1},
		{"length:at_most=3", row("1234", ""), 0},
		{"length:at_least=2,at_most=3,unit=words", row("a b  c", ""), 1},
		{"length:at_least=4,unit=chars", row("äöü", ""), 0},
		{"math", row("so it is 1,000", "#### 1000"), 1},
		{"math", row("7", 7.0), 1},
		{"math:last_number=off", row("so it is 1,000", "1000"), 0},
		{"math_verify", row("$\\frac12$", "1/2"), 1},
	} {
		assert.Equal(t, Score{Value: c.want}, one(t, c.spec, c.s), "%s on %q", c.spec, c.s.Completion)
	}
}

// f parses a reward.
func f(t *testing.T, spec string) Func {
	t.Helper()
	f, err := Parse(spec)
	require.NoError(t, err)
	return f
}

func TestGoldColumn(t *testing.T) {
	score := func(spec string, columns map[string]any) error {
		f, err := Parse(spec)
		require.NoError(t, err)
		_, err = f.Score(context.Background(), []Sample{{Completion: "5", Columns: columns, Step: 2, Index: 3}})
		return err
	}
	assert.NoError(t, score("math", map[string]any{"solution": "5"}), "the next name in line")
	for _, c := range []struct {
		spec    string
		columns map[string]any
		says    []string
	}{
		{"math", map[string]any{"question": "q", "level": 3}, []string{"no column answer, solution", "the row has: level, question", "math:NAME", "step 2 group 0 sample 3"}},
		{"exact:gold", map[string]any{"answer": "5"}, []string{"no column gold", "the row has: answer"}},
		{"accuracy:x", nil, []string{"no columns but the prompt"}},
		{"math", map[string]any{"answer": []any{"5"}}, []string{"[]interface", "name a column of text"}},
		{"math", map[string]any{"answer": nil}, []string{"nil"}},
		{"math", map[string]any{"answer": " "}, []string{"gold answer is empty"}},
	} {
		err := score(c.spec, c.columns)
		var own *Error
		require.ErrorAs(t, err, &own, c.spec)
		assert.Equal(t, KindColumn, own.Kind)
		for _, s := range c.says {
			assert.Contains(t, err.Error(), s)
		}
		// The same is known before there is a completion.
		early := Check([]Weighted{{f(t, "length:4"), 1}, {f(t, c.spec), 1}}, &Sample{Columns: c.columns})
		require.ErrorAs(t, early, &own, c.spec)
		assert.Nil(t, own.Sample)
		assert.Contains(t, err.Error(), own.Detail)
	}
}

func TestSplitWords(t *testing.T) {
	words, err := splitWords(`a "b  c" d'e "f'g ''  C:\x\y` + "\t" + `"it's"`)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b  c", `de "fg`, "", `C:\x\y`, "it's"}, words)
}

// FuzzParse looks for panics, and for specs that parse under another name than their own.
func FuzzParse(f *testing.F) {
	for _, info := range Describe() {
		f.Add(info.Syntax)
		f.Add("0.5*" + info.Name + ":a=1,b")
	}
	f.Fuzz(func(t *testing.T, spec string) {
		all, err := ParseAll([]string{spec})
		if err != nil {
			return
		}
		defer Close(all)
		if !strings.HasSuffix(strings.TrimSpace(spec), all[0].Func.Name()) {
			t.Errorf("%q became %q", spec, all[0].Func.Name())
		}
	})
}
