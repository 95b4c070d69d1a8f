package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/model"
	"graft/model/template"
	"graft/model/tokenizer"
	"graft/weights"
)

// realModels maps a golden file to the model it was made from, as scripts/fetch-models.sh names it.
var realModels = map[string]string{
	"smollm2-135m-instruct-q4_1.json":         "SmolLM2-135M-Instruct.Q4_1.gguf",
	"qwen2.5-coder-0.5b-instruct-q4_k_m.json": "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
	"gemma-3-270m-q4_k_m.json":                "Gemma-3-270M.Q4_K_M.gguf",
}

// realModel finds a real model or skips with the command that brings it.
func realModel(t testing.TB, name string) string {
	t.Helper()
	folder := os.Getenv("GRAFT_MODELS")
	if folder == "" {
		home, err := os.UserHomeDir()
		require.NoError(t, err)
		folder = filepath.Join(home, ".cache", "graft", "models")
	}
	path := filepath.Join(folder, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there; scripts/fetch-models.sh brings it", path)
	}
	return path
}

type realCase struct {
	Text      *string         `json:"text"`
	Messages  json.RawMessage `json:"messages"`
	IDs       []int32         `json:"ids"`
	LogProbs  []*float64      `json:"logprobs"`
	Entropies []*float64      `json:"entropies"`
	Greedy8   []int32         `json:"greedy8"`
}

// TestRealModels compares with transformers in float32 on the dequantized weights: 2e-3 on a
// log-prob, 1e-3 on average, as float32 against float32 over 18 to 30 layers.
func TestRealModels(t *testing.T) {
	be := backend(t)
	for golden, name := range realModels {
		t.Run(name, func(t *testing.T) {
			path := realModel(t, name)
			var file struct {
				Cases []realCase `json:"cases"`
			}
			readJSON(t, filepath.Join(dir(t, "golden-real"), golden), &file)
			require.NotEmpty(t, file.Cases)
			files, err := model.Open(path, model.Options{Context: 2048})
			require.NoError(t, err)
			defer files.Close()
			arena := weights.NewArena(be, 0)
			defer arena.Close()
			m, err := files.Load(arena)
			require.NoError(t, err)
			for i, c := range file.Cases {
				checkIDs(t, files.Tokenizer, i, c)
				checkLogProbs(t, m, i, c)
			}
		})
	}
}

func checkIDs(t *testing.T, tok *tokenizer.Tokenizer, i int, c realCase) {
	t.Helper()
	switch {
	case c.Text != nil:
		ids, err := tok.Encode(*c.Text, tokenizer.EncodeOptions{AddSpecial: true})
		require.NoError(t, err)
		require.Equal(t, c.IDs, ids, "case %d", i)
	case len(c.Messages) > 0 && string(c.Messages) != "null":
		v, err := template.DecodeJSON(c.Messages)
		require.NoError(t, err)
		messages := v.([]any)
		tmpl, err := template.Parse(tok.ChatTemplate())
		require.NoError(t, err)
		role, _ := messages[len(messages)-1].(*template.Map).Get("role")
		text, err := tmpl.RenderChat(template.Chat{Messages: messages, AddGenerationPrompt: role == "user",
			BOS: special(tok, tok.BOS), EOS: special(tok, tok.EOS)})
		require.NoError(t, err)
		ids, err := tok.Encode(text, tokenizer.EncodeOptions{})
		require.NoError(t, err)
		require.Equal(t, c.IDs, ids, "case %d", i)
	}
}

func special(tok *tokenizer.Tokenizer, f func() (int32, bool)) string {
	id, ok := f()
	if !ok {
		return ""
	}
	s, _ := tok.Token(id)
	return s
}

func checkLogProbs(t *testing.T, m *model.Model, i int, c realCase) {
	t.Helper()
	next, entropy := score(t, m, nil, c.IDs)
	var sum float64
	for j, got := range next {
		d := float64(got) - *c.LogProbs[j+1]
		require.InDelta(t, *c.LogProbs[j+1], got, 2e-3, "case %d, token %d", i, j+1)
		sum += max(d, -d)
	}
	require.LessOrEqual(t, sum/float64(max(1, len(next))), 1e-3, "case %d", i)
	for j, want := range c.Entropies {
		if want != nil && j < len(entropy) {
			require.InDelta(t, *want, entropy[j], 4e-3, "case %d, entropy %d", i, j)
		}
	}
	require.Equal(t, c.Greedy8, greedy(t, m, nil, c.IDs, len(c.Greedy8)), "case %d", i)
}
