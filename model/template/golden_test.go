package template

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testdata returns a path below the test data folder, which GRAFT_GOLDEN may
// replace by another of the same layout.
func testdata(parts ...string) string {
	root := os.Getenv("GRAFT_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "..", "tests", "testdata")
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

// golden is chat.json: what Jinja2 with the transformers library renders.
type golden struct {
	Now           string                     `json:"now"`
	Tokens        map[string]string          `json:"special_tokens"`
	Conversations map[string]json.RawMessage `json:"conversations"`
	Cases         []struct {
		Template     string          `json:"template"`
		Conversation string          `json:"conversation"`
		Kwargs       json.RawMessage `json:"kwargs"`
		Rendered     string          `json:"rendered"`
		GenSuffix    string          `json:"gen_suffix"`
		RenderedGen  *string         `json:"rendered_gen"`
		Error        any             `json:"error"`
		ErrorGen     any             `json:"error_gen"`
	} `json:"cases"`
	Spans []struct {
		Template     string   `json:"template"`
		Conversation string   `json:"conversation"`
		Spans        [][2]int `json:"spans"`
		Texts        []string `json:"texts"`
	} `json:"generation_spans"`
}

func loadGolden(t testing.TB) *golden {
	t.Helper()
	data, err := os.ReadFile(testdata("golden-hf", "chat", "chat.json"))
	require.NoError(t, err)
	g := &golden{}
	require.NoError(t, json.Unmarshal(data, g))
	require.NotEmpty(t, g.Cases)
	return g
}

// chat returns a conversation of the golden file as a Chat.
func (g *golden) chat(t testing.TB, conversation string, kwargs json.RawMessage) Chat {
	t.Helper()
	v, err := DecodeJSON(g.Conversations[conversation])
	require.NoError(t, err)
	m := v.(*Map)
	messages, _ := m.Get("messages")
	tools, _ := m.Get("tools")
	now, err := time.Parse("2006-01-02T15:04:05", g.Now)
	require.NoError(t, err)
	c := Chat{Messages: messages.([]any), Tools: tools, Now: now,
		BOS: g.Tokens["bos_token"], EOS: g.Tokens["eos_token"], UNK: g.Tokens["unk_token"], PAD: g.Tokens["pad_token"]}
	if kwargs != nil {
		v, err := DecodeJSON(kwargs)
		require.NoError(t, err)
		c.Kwargs = v.(*Map)
	}
	return c
}

func readTemplate(t testing.TB, name string) *Template {
	t.Helper()
	source, err := os.ReadFile(testdata("templates", name))
	require.NoError(t, err)
	parsed, err := Parse(string(source))
	require.NoError(t, err, name)
	return parsed
}

// TestGoldenChats renders every published template with every conversation and
// expects the text that Jinja2 gives, or an error where it gives one.
func TestGoldenChats(t *testing.T) {
	g := loadGolden(t)
	templates := map[string]*Template{}
	for _, c := range g.Cases {
		if templates[c.Template] == nil {
			templates[c.Template] = readTemplate(t, c.Template)
		}
		name := strings.TrimSuffix(c.Template, ".jinja") + "/" + c.Conversation + string(c.Kwargs)
		t.Run(name, func(t *testing.T) {
			for _, gen := range []bool{false, true} {
				chat := g.chat(t, c.Conversation, c.Kwargs)
				chat.AddGenerationPrompt = gen
				got, err := templates[c.Template].RenderChat(chat)
				want, wantErr := c.Rendered, c.Error
				if gen {
					want, wantErr = c.Rendered+c.GenSuffix, c.ErrorGen
					if c.RenderedGen != nil {
						want = *c.RenderedGen
					}
				}
				if wantErr != nil {
					assert.Error(t, err, "Jinja2 fails with %v", wantErr)
					continue
				}
				if assert.NoError(t, err) {
					assert.Equal(t, want, got)
				}
			}
		})
	}
}

// TestGoldenSpans compares the places of generation blocks.
func TestGoldenSpans(t *testing.T) {
	g := loadGolden(t)
	require.NotEmpty(t, g.Spans)
	for _, c := range g.Spans {
		t.Run(c.Template+"/"+c.Conversation, func(t *testing.T) {
			text, spans, err := readTemplate(t, c.Template).RenderChatSpans(g.chat(t, c.Conversation, nil))
			require.NoError(t, err)
			require.Len(t, spans, len(c.Spans))
			for i, span := range spans {
				// The golden file counts characters.
				chars := [2]int{runeLen(text[:span[0]]), runeLen(text[:span[1]])}
				assert.Equal(t, c.Spans[i], chars)
				assert.Equal(t, c.Texts[i], text[span[0]:span[1]])
			}
		})
	}
}
