package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/model"
)

// TestRopeVariants loads one checkpoint under other rotary settings: theta, linear, dynamic, yarn,
// llama3. Dynamic looks at the length of the sequence, which Graft fixes when it loads.
func TestRopeVariants(t *testing.T) {
	be := backend(t)
	models := dir(t, "golden-hf/models")
	var file struct {
		IDs      [][]int32 `json:"input_ids"`
		Variants []struct {
			Name      string          `json:"name"`
			Rope      json.RawMessage `json:"rope_parameters"`
			Overrides map[string]any  `json:"config_overrides"`
			Sequences []struct {
				NextLogP []float64 `json:"next_logp"`
			} `json:"sequences"`
		} `json:"variants"`
	}
	readJSON(t, filepath.Join(models, "rope_variants.json"), &file)
	require.NotEmpty(t, file.Variants)
	for _, v := range file.Variants {
		t.Run(v.Name, func(t *testing.T) {
			folder := t.TempDir()
			weights, err := os.ReadFile(filepath.Join(models, "llama-untied", "model.safetensors"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "model.safetensors"), weights, 0o666))
			var config map[string]any
			readJSON(t, filepath.Join(models, "llama-untied", "config.json"), &config)
			config["rope_parameters"] = v.Rope
			for k, x := range v.Overrides {
				config[k] = x
			}
			raw, err := json.Marshal(config)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), raw, 0o666))
			for i, ids := range file.IDs {
				m := load(t, be, folder, model.Options{Context: len(ids)})
				next, _ := score(t, m, nil, ids)
				closeTo(t, v.Sequences[i].NextLogP, next, hfTolerance)
			}
		})
	}
}
