package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/model"
	"graft/weights"
)

// hfGolden is golden.json of a checkpoint folder.
type hfGolden struct {
	IDs       [][]int32 `json:"input_ids"`
	Sequences []struct {
		NextLogP []float64 `json:"next_logp"`
		Entropy  []float64 `json:"entropy"`
		TopIDs   []int32   `json:"last_top10_ids"`
		TopLogP  []float64 `json:"last_top10_logp"`
	} `json:"sequences"`
	Greedy []int32 `json:"greedy_from_seq1"`
	Margin float64 `json:"greedy_min_margin"`
}

// hfModels are the checkpoints of supported families, whatever their folders are called.
func hfModels(t testing.TB) []string {
	var out []string
	for _, name := range folders(t, "golden-hf/models", "golden.json") {
		if !unsupported(filepath.Join(dir(t, "golden-hf/models"), name)) {
			out = append(out, name)
		}
	}
	if os.Getenv("GRAFT_GOLDEN") == "" {
		require.Len(t, out, 13)
	}
	return out
}

// The tolerance is the goldens' own: float32 against float64.
const hfTolerance = 1e-4

func TestHuggingFaceModels(t *testing.T) {
	be := backend(t)
	for _, name := range hfModels(t) {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(dir(t, "golden-hf/models"), name)
			var g hfGolden
			readJSON(t, filepath.Join(folder, "golden.json"), &g)
			for i, ids := range g.IDs {
				// Longrope chooses its factors by length; Graft fixes the length at load.
				m := load(t, be, folder, model.Options{Context: len(ids)})
				next, entropy := score(t, m, nil, ids)
				closeTo(t, g.Sequences[i].NextLogP, next, hfTolerance)
				closeTo(t, g.Sequences[i].Entropy, entropy, hfTolerance)
				top := topOf(t, m, nil, ids, 10)
				for j, tok := range top {
					require.InDelta(t, g.Sequences[i].TopLogP[j], tok.LogP, hfTolerance)
				}
			}
			if g.Margin > 1e-3 && name != "phi3-longrope" {
				m := load(t, be, folder, model.Options{Context: 64})
				require.Equal(t, g.Greedy, greedy(t, m, nil, g.IDs[1], len(g.Greedy)))
			}
		})
	}
}

// TestLegacyConfigs loads each checkpoint under the configuration layout of older transformers.
func TestLegacyConfigs(t *testing.T) {
	be := backend(t)
	for _, name := range hfModels(t) {
		t.Run(name, func(t *testing.T) {
			src := filepath.Join(dir(t, "golden-hf/models"), name)
			legacy, err := os.ReadFile(filepath.Join(src, "config_legacy.json"))
			if err != nil {
				t.Skip(err)
			}
			folder := t.TempDir()
			files, err := filepath.Glob(filepath.Join(src, "model*"))
			require.NoError(t, err)
			for _, f := range files {
				raw, err := os.ReadFile(f)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(f)), raw, 0o666))
			}
			require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), legacy, 0o666))
			var g hfGolden
			readJSON(t, filepath.Join(src, "golden.json"), &g)
			for i, ids := range g.IDs {
				m := load(t, be, folder, model.Options{Context: len(ids)})
				next, _ := score(t, m, nil, ids)
				closeTo(t, g.Sequences[i].NextLogP, next, hfTolerance)
			}
		})
	}
}

func closeTo[T float32 | float64](t *testing.T, want []float64, got []T, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDelta(t, want[i], float64(got[i]), tolerance, "entry %d", i)
	}
}

// ggufFile is ref.json, refq.json or refl.json: for each model the log-prob of each next prompt
// token and, perhaps, the five most probable tokens at the end.
type ggufFile struct {
	IDs    []int32            `json:"ids"`
	Models map[string]ggufRef `json:"res"`
}

type ggufRef struct {
	LogP []float64    `json:"prompt_lp"`
	Top  [][2]float64 `json:"top5_last"`
}

func readGGUFRef(t *testing.T, path string) ggufFile {
	var f ggufFile
	readJSON(t, path, &f)
	require.NotEmpty(t, f.Models)
	return f
}

func TestGGUFModels(t *testing.T) {
	be := backend(t)
	root := dir(t, "golden-gguf")
	// The references are float64; Q4_0 and Q8_0 twins were dequantized first.
	for _, file := range []string{"ref.json", "refq.json"} {
		ref := readGGUFRef(t, filepath.Join(root, file))
		for name, want := range ref.Models {
			t.Run(name, func(t *testing.T) {
				m := load(t, be, filepath.Join(root, name+".gguf"), model.Options{Context: 64})
				checkGGUF(t, m, nil, ref.IDs, want)
			})
		}
	}
}

func TestGGUFAdapter(t *testing.T) {
	be := backend(t)
	root := dir(t, "golden-gguf")
	m := load(t, be, filepath.Join(root, "llama.gguf"), model.Options{Context: 64})
	ad, err := m.LoadAdapter(filepath.Join(root, "lora.gguf"), 1, false)
	require.NoError(t, err)
	ref := readGGUFRef(t, filepath.Join(root, "refl.json"))
	checkGGUF(t, m, ad, ref.IDs, ref.Models["llama"])
}

func checkGGUF(t *testing.T, m *model.Model, ad *weights.Adapter, ids []int32, ref ggufRef) {
	t.Helper()
	next, _ := score(t, m, ad, ids)
	closeTo(t, ref.LogP, next, 1e-5)
	for i, tok := range topOf(t, m, ad, ids, len(ref.Top)) {
		require.Equal(t, int32(ref.Top[i][0]), tok.ID)
		require.InDelta(t, ref.Top[i][1], tok.LogP, 1e-5)
	}
}
