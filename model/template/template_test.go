package template

import (
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustParse(t testing.TB, source string) *Template {
	t.Helper()
	tmpl, err := Parse(source)
	require.NoError(t, err)
	return tmpl
}

func TestChatConventions(t *testing.T) {
	m := NewMap("role", "user", "content", nil, "reasoning", "why")
	got, err := mustParse(t, `{{ messages[0] }} {{ tools }} {{ documents }} {{ add_generation_prompt }} {{ bos_token is defined }} {{ eos_token }}`).
		RenderChat(Chat{Messages: []any{m}, EOS: "</s>"})
	require.NoError(t, err)
	assert.Equal(t, "{'role': 'user', 'reasoning': 'why', 'reasoning_content': 'why', 'thinking': 'why'} None None False False </s>", got)
	assert.Equal(t, []string{"role", "content", "reasoning"}, m.Keys(), "the message handed in stays as it is")

	got, err = mustParse(t, `{{ messages[0].thinking }} {{ messages[0].reasoning_content }}`).
		RenderChat(Chat{Messages: []any{NewMap("thinking", "t", "reasoning_content", "r")}})
	require.NoError(t, err)
	assert.Equal(t, "t r", got)
}

func TestKwargs(t *testing.T) {
	tmpl := mustParse(t, `{{ enable_thinking }} {{ bos_token }} {{ n + 1 }} {{ names }}`)
	got, err := tmpl.RenderChat(Chat{BOS: "<s>", Kwargs: NewMap("enable_thinking", false, "bos_token", "X", "n", 2, "names", []string{"a"})})
	require.NoError(t, err)
	assert.Equal(t, "False X 3 ['a']", got)

	for _, name := range []string{"messages", "tools", "documents", "add_generation_prompt"} {
		_, err := tmpl.RenderChat(Chat{Kwargs: NewMap(name, true)})
		assert.ErrorContains(t, err, name)
	}
}

func TestForeignValuesAreNamed(t *testing.T) {
	tmpl := mustParse(t, `x`)
	_, err := tmpl.RenderChat(Chat{Messages: []any{NewMap("content", []any{NewMap("image", map[string]any{})})}})
	assert.ErrorContains(t, err, "messages[0]['content'][0]['image'] has Go type map[string]interface {}")
	deep := any("x")
	for range 300 {
		deep = []any{deep}
	}
	_, err = tmpl.RenderChat(Chat{Tools: deep})
	assert.ErrorContains(t, err, "nested more than")
}

func TestRaisedError(t *testing.T) {
	_, err := mustParse(t, "a\n{{ raise_exception('roles must alternate') }}").RenderChat(Chat{})
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, &Error{Kind: Raised, Line: 2, Message: "roles must alternate"}, e)
}

func TestErrorLines(t *testing.T) {
	for source, want := range map[string]int{
		"a\nb\n{{ x.y }}": 3,
		"{% macro m() %}\n\n{{ none + 1 }}{% endmacro %}\n{{ m() }}": 3,
		"{% macro m() %}\n{% endmacro %}\n{{ m() + 1 }}":             3,
		"{#\n\n#}{{ 1 + }}":                  3,
		"{{ 'a\nb' }}\n{% foo %}":            3,
		"{% raw %}\n\n{% endraw %}{{ x() }}": 3,
		"x  \n\n{%- if t.u %}{% endif %}":    3,
	} {
		tmpl, err := Parse(source)
		if err == nil {
			_, err = tmpl.Render(nil, Limits{})
		}
		var e *Error
		if assert.ErrorAs(t, err, &e, source) {
			assert.Equal(t, want, e.Line, "%s: %v", source, err)
		}
	}
}

func TestSpans(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   []string // nil: an error
	}{
		"plain":      {`é{% generation %}ab{% endgeneration %}c{% generation %}d{% endgeneration %}`, []string{"ab", "d"}},
		"none":       {`abc`, []string{}},
		"loop":       {`{% for x in 'xy' %}<{% generation %}{{ x }}!{% endgeneration %}{% endfor %}`, []string{"x!", "y!"}},
		"macro":      {`{% macro m(x) %}pre{% generation %}{{ x }}{% endgeneration %}post{% endmacro %}a{{ m('one') }}b{{ m('2') }}`, []string{"one", "2"}},
		"caller":     {`{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}k{% generation %}xy{% endgeneration %}{% endcall %}`, []string{"xy"}},
		"set":        {`{% set s %}1{% generation %}xy{% endgeneration %}{% endset %}a{{ s }}b{{ s }}`, []string{"xy", "xy"}},
		"one byte":   {`7{% set s %}{% generation %}7{% endgeneration %}{% endset %}{{ '7' }}a{{ s }}`, []string{"7"}},
		"recursion":  {`{% for x in [[[]]] recursive %}({% generation %}{{ loop.depth }}{% endgeneration %}{{ loop(x) }}){% endfor %}`, []string{"1", "2"}},
		"changed":    {`{% set s %}{% generation %}xy{% endgeneration %}{% endset %}{{ s|upper }}`, nil},
		"dropped":    {`{% set s %}{% generation %}xy{% endgeneration %}{% endset %}`, nil},
		"cut":        {`{% set s %}{% generation %}xy{% endgeneration %}{% endset %}{{ s[:1] }}`, nil},
		"concatened": {`{% macro m() %}{% generation %}xy{% endgeneration %}{% endmacro %}{{ 'a' ~ m() }}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text, spans, err := mustParse(t, c.source).RenderChatSpans(Chat{})
			if c.want == nil {
				require.ErrorContains(t, err, "generation block")
				return
			}
			require.NoError(t, err)
			got := []string{}
			last := 0
			for _, s := range spans {
				assert.GreaterOrEqual(t, s[0], last)
				last = s[1]
				got = append(got, text[s[0]:s[1]])
			}
			assert.Equal(t, c.want, got)
			if name == "one byte" {
				assert.Equal(t, [][2]int{{3, 4}}, spans)
			}
		})
	}
}

// TestConcurrentRenders is for the race detector: one template and one chat in
// many goroutines.
func TestConcurrentRenders(t *testing.T) {
	g := loadGolden(t)
	tmpl := readTemplate(t, "openai-gpt-oss-120b.jinja")
	chat := g.chat(t, "tool-call", nil)
	want, err := tmpl.RenderChat(chat)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := tmpl.RenderChat(chat)
			assert.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
	wg.Wait()
}

func TestDecodeJSON(t *testing.T) {
	v, err := DecodeJSON([]byte(` {"b": 1, "a": [1.0, -2, 1e3, true, null, "\u00e9\ud83d\ude00\ud800x\n"], "b": 2, "big": 123456789012345678901234567890, "e": {}, "l": []} `))
	require.NoError(t, err)
	m := v.(*Map)
	assert.Equal(t, []string{"b", "a", "big", "e", "l"}, m.Keys())
	b, _ := m.Get("b")
	assert.Equal(t, int64(2), b)
	a, _ := m.Get("a")
	assert.Equal(t, []any{1.0, int64(-2), 1000.0, true, nil, "é😀\ufffdx\n"}, a)
	n, _ := m.Get("big")
	want, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	assert.Equal(t, want, n)
	_, ok := m.Get("nope")
	assert.False(t, ok)

	for _, bad := range []string{"", "{", "[1,]", `{"a":1,}`, `{"a"}`, `{a:1}`, "01", "1.", "-", "1e", "nul", `"a`, `"\x"`, `"\u12"`, "\"\n\"", "1 2", "NaN", "\xff", `"` + "\xff" + `"`,
		strings.Repeat("[", 1_000_000), strings.Repeat("9", 5000)} {
		_, err := DecodeJSON([]byte(bad))
		assert.Error(t, err, "%.20q", bad)
	}
}

// TestJSONRoundTrip writes what it reads, in the form of json.dumps.
func TestJSONRoundTrip(t *testing.T) {
	tmpl := mustParse(t, `{{ v|tojson }}`)
	for _, text := range []string{`{"b": [1, 2.5, {"a": null}], "a": "x\"\\\n\u0001é", "": true}`, `[]`, `{}`, `-0.0`, `1e+16`, `123456789012345678901234567890`} {
		v, err := DecodeJSON([]byte(text))
		require.NoError(t, err)
		got, err := tmpl.Render(NewMap("v", v), Limits{})
		require.NoError(t, err)
		assert.Equal(t, text, got)
	}
}

// TestMap checks Map against a plain Go map and the order of first setting.
func TestMap(t *testing.T) {
	m := &Map{}
	var order []string
	want := map[string]any{}
	for i := range 200 {
		key := string(rune('a'+i*7%26)) + string(rune('a'+i*i%11))
		if i%5 == 4 {
			m.Delete(key)
			if _, ok := want[key]; ok {
				delete(want, key)
				for j, k := range order {
					if k == key {
						order = append(order[:j:j], order[j+1:]...)
						break
					}
				}
			}
			continue
		}
		if _, ok := want[key]; !ok {
			order = append(order, key)
		}
		m.Set(key, i)
		want[key] = i
		require.Equal(t, order, m.Keys())
		require.Equal(t, len(want), m.Len())
		for k, v := range want {
			got, ok := m.Get(k)
			require.True(t, ok)
			require.Equal(t, v, got)
		}
	}
	assert.Zero(t, (*Map)(nil).Len())
	odd := []any{"a"}
	assert.Panics(t, func() { NewMap(odd...) })
}

func TestNow(t *testing.T) {
	got, err := mustParse(t, `{{ strftime_now('%d %b %Y') }}`).RenderChat(Chat{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	require.NoError(t, err)
	assert.Equal(t, "02 Jan 2026", got)
}

func BenchmarkRender(b *testing.B) {
	g := loadGolden(b)
	for _, name := range []string{"Qwen-Qwen2.5-7B-Instruct.jinja", "google-gemma-4-31B-it.jinja", "meta-llama-Llama-3.3-70B-Instruct.jinja"} {
		tmpl := readTemplate(b, name)
		chat := g.chat(b, "tool-call", nil)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tmpl.RenderChat(chat); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzRender parses and renders anything within small limits: it may fail, but
// neither crash nor hang, and only with an *Error.
func FuzzRender(f *testing.F) {
	files, err := filepath.Glob(testdata("templates", "*.jinja"))
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, name := range files {
		source, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(string(source))
	}
	for _, source := range hostile {
		f.Add(source)
	}
	var file struct{ Cases []struct{ Source string } }
	data, err := os.ReadFile("testdata/semantics.json")
	require.NoError(f, err)
	require.NoError(f, json.Unmarshal(data, &file))
	for _, c := range file.Cases {
		f.Add(c.Source)
	}
	g := loadGolden(f)
	chat := g.chat(f, "tool-call-answered", nil)
	chat.Limits = Limits{Steps: 50_000, Depth: 20, Output: 1 << 16, StringSize: 1 << 14}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
		var e *Error
		if err != nil {
			require.ErrorAs(t, err, &e)
			return
		}
		text, spans, err := tmpl.RenderChatSpans(chat)
		if err != nil {
			require.ErrorAs(t, err, &e)
			return
		}
		require.LessOrEqual(t, len(text), chat.Limits.Output)
		for _, s := range spans {
			require.True(t, 0 <= s[0] && s[0] <= s[1] && s[1] <= len(text))
		}
		again, _, err := tmpl.RenderChatSpans(chat)
		require.NoError(t, err)
		require.Equal(t, text, again, "a render changed what it was given")
	})
}

// FuzzDecodeJSON expects every value read to be written and read back alike.
func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.5, null, true, "x\u00e9"]}`, `[[[]]]`, `-1e-5`, `"\ud83d\ude00"`, `123456789012345678901`} {
		f.Add([]byte(s))
	}
	tmpl := mustParse(f, `{{ v|tojson }}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := DecodeJSON(data)
		if err != nil {
			return
		}
		require.True(t, json.Valid(data))
		text, err := tmpl.Render(NewMap("v", v), Limits{})
		require.NoError(t, err)
		again, err := DecodeJSON([]byte(text))
		if strings.Contains(text, "Infinity") {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, v, again)
	})
}
