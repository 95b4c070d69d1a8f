package rl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRowsThatADecoderWouldChangeAreRefused(t *testing.T) {
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf(`"k%d":0`, i))
	}
	for raw, want := range map[string]string{
		`{"prompt":"a","prompt":"b"}`:                             `column "prompt" is given twice`,
		`{"a":1,"\u0061":2}`:                                      `column "a" is given twice`,
		`{"m":[{"role":"user","content":"x","role":"tool"}]}`:     `column "m": the key "role" is given twice in one object`,
		`{"m":{` + strings.Join(many, ",") + `,"k3":1}}`:          `column "m": the key "k3" is given twice`,
		`{"q":1,"prompt":"x \ud800 y"}`:                           `column "prompt": \ud800 is half of a character: it needs its other half, as in \ud83d\ude00`,
		`{"m":[{"content":["\ude00\ud83d"]}]}`:                    `column "m": \ude00 is half of a character`,
		`{"\ud83d":1}`:                                            `the key "\ud83d" has \ud83d, which is half of a character`,
		"{\"a\":\"\xff\"}":                                        "not valid UTF-8",
		`{"m":{` + strings.Join(many, ",") + `},"k3":1}`:          "",
		`{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}],"c":"a","d":1}`: "",
		`{"a":"\ud83d\ude00 \\ud800 \u00e4 \" ,\"a\":"}`:          "",
		`["a","a",{"b":1},{"b":1}]`:                               "",
		`{`:                                                       "", `{"a`: "", `}}]`: "", `{"a":1]`: "",
	} {
		err := CheckJSON([]byte(raw))
		if want == "" {
			require.NoError(t, err, raw)
		} else {
			require.ErrorContains(t, err, want, raw)
		}
	}
	// In files of both kinds, with the line.
	for name, text := range map[string]string{
		"a.jsonl": "{\"a\":1}\n{\"a\":\"\\ud800\"}\n",
		"a.json":  "[{\"a\":1},\n{\"a\":\"\\ud800\"}]",
	} {
		_, err := OpenDataset(file(t, name, text), DatasetOptions{})
		require.ErrorContains(t, err, `line 2: column "a": \ud800 is half of a character`, name)
	}
	_, err := OpenDataset(file(t, "a.jsonl", "{\"a\":1,\"a\":2}\n"), DatasetOptions{})
	require.ErrorContains(t, err, `line 1: column "a" is given twice`)
	_, err = renderer(t, RenderOptions{ChatTemplate: chatML}).Prompt(NewRow(0, map[string]any{"prompt": say("user", "u"), "tools": `[{"name":"f","name":"g"}]`}))
	require.ErrorContains(t, err, `column "tools": the key "name" is given twice`)
}

// FuzzCheckJSON holds the check to the decoder of the standard library: what passes has no object
// with two equal keys, and no text that decoding changed.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[{"c":"\ud83d\ude00"}]}`, `{"a":1,"a":2}`, `"\ud800"`, `[[{}]]`, `{"a\"":"\\"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := CheckJSON(raw)
		if !json.Valid(raw) {
			return
		}
		changed := false
		d := json.NewDecoder(bytes.NewReader(raw))
		var keys []map[string]bool // nil: an array
		expect := []bool{}
		for {
			token, end := d.Token()
			if end != nil {
				break
			}
			n := len(keys)
			switch v := token.(type) {
			case json.Delim:
				switch v {
				case '{', '[':
					if n > 0 {
						expect[n-1] = true
					}
					var set map[string]bool
					if v == '{' {
						set = map[string]bool{}
					}
					keys, expect = append(keys, set), append(expect, true)
				default:
					keys, expect = keys[:n-1], expect[:n-1]
				}
				continue
			case string:
				changed = changed || strings.ContainsRune(v, 0xFFFD) && !bytes.Contains(raw, []byte("\uFFFD")) && !bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`))
				if n > 0 && keys[n-1] != nil && expect[n-1] {
					changed = changed || keys[n-1][v]
					keys[n-1][v], expect[n-1] = true, false
					continue
				}
			}
			if n > 0 {
				expect[n-1] = true
			}
		}
		if changed && len(raw) < maxJSONNesting {
			require.Error(t, err, "%s", raw)
		} else if err != nil {
			require.Regexp(t, "given twice|half of a character|UTF-8", err.Error())
		}
	})
}
