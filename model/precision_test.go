package model

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels"
	"graft/kernels/quant"
	"graft/kernels/ref"
	"graft/weights"
	"graft/weights/gguf"
	"graft/weights/safetensors"
)

const golden = "../tests/testdata/golden-gguf"

func loaded(t *testing.T, name string, o Options) *Model {
	t.Helper()
	o.Context = 64
	files, err := Open(filepath.Join(golden, name), o)
	require.NoError(t, err)
	defer files.Close()
	arena := weights.NewArena(ref.New(), 0)
	t.Cleanup(arena.Close)
	m, err := files.Load(arena)
	require.NoError(t, err)
	require.Equal(t, files.Precision(), m.Precision)
	require.Equal(t, files.Quantized(), m.quantized())
	return m
}

// matrices lists every matrix of the base, embedding and head included.
func matrices(m *Model) []*weights.Linear {
	return append([]*weights.Linear{m.Embed, m.Head}, m.Linears...)
}

func TestContractMarksQuantizedMatricesAndNoOthers(t *testing.T) {
	int8 := kernels.PrecisionInt8
	for _, c := range []struct {
		file string
		o    Options
		want kernels.Precision
	}{
		{"llama-Q4_0.gguf", Options{Precision: int8}, int8},
		{"qwen3-Q8_0.gguf", Options{Precision: int8}, int8},
		{"gemma3.gguf", Options{Precision: int8, Format: new(quant.Q8_0)}, int8}, // its head is its embedding
		{"llama-Q4_0.gguf", Options{}, kernels.PrecisionF32},
		{"llama.gguf", Options{Precision: int8}, kernels.PrecisionF32},
		{"llama-Q4_0.gguf", Options{Precision: int8, Format: new(quant.F16)}, kernels.PrecisionF32},
		{"llama-Q4_0.gguf", Options{Precision: int8, Trained: true}, kernels.PrecisionF32},
	} {
		m := loaded(t, c.file, c.o)
		require.Equal(t, c.want, m.Precision, c.file)
		rounds := 0
		for _, l := range matrices(m) {
			if l.W.Rounds() {
				rounds++
			}
			require.Equal(t, l.W.Format.BlockLen() > 1 && c.want == int8, l.W.Rounds(), "%s %s", c.file, l.Name)
		}
		require.Equal(t, c.want == int8, rounds > 0, c.file)
		ad, err := m.NewAdapter(1, weights.AdapterConfig{R: 2, Alpha: 4, TargetModules: []string{"all-linear"}}, 1, true)
		require.NoError(t, err)
		for _, p := range ad.Pairs() {
			for _, w := range []kernels.Weight{p.A, p.B, p.DA, p.DB} {
				require.False(t, w.Rounds())
				require.Equal(t, kernels.PrecisionF32, w.Precision)
			}
		}
	}
}

func TestAdapterRemembersItsContract(t *testing.T) {
	int8, f32 := kernels.PrecisionInt8, kernels.PrecisionF32
	for _, p := range []kernels.Precision{f32, int8} {
		m := loaded(t, "llama-Q4_0.gguf", Options{Precision: p})
		other := loaded(t, "llama-Q4_0.gguf", Options{Precision: int8 - p})
		plain := loaded(t, "llama.gguf", Options{Precision: int8})
		ad, err := m.NewAdapter(1, weights.AdapterConfig{R: 2, Alpha: 4, TargetModules: []string{"q_proj", "down_proj"}}, 1, true)
		require.NoError(t, err)
		dir := t.TempDir()
		peft, file := filepath.Join(dir, "peft"), filepath.Join(dir, "lora.gguf")
		require.NoError(t, m.SavePEFT(ad, peft))
		require.NoError(t, m.SaveAdapterGGUF(ad, file))
		for id, path := range []string{peft, file} {
			got, err := AdapterPrecision(path)
			require.NoError(t, err)
			require.Equal(t, &p, got)

			back, err := m.LoadAdapter(path, uint64(10+id), true)
			require.NoError(t, err)
			require.Equal(t, &p, back.Config.Precision)
			require.Equal(t, m.HashAdapter(ad), m.HashAdapter(back))

			// Training goes on under its own contract only, use may not: what is used keeps what it was.
			_, err = other.LoadAdapter(path, uint64(20+id), true)
			require.ErrorContains(t, err, "trained under precision "+p.String()+", and the model was loaded under "+(int8-p).String())
			used, err := other.LoadAdapter(path, uint64(30+id), false)
			require.NoError(t, err)
			require.Error(t, other.CheckPrecision(used))
			again := filepath.Join(t.TempDir(), "again")
			require.NoError(t, other.SavePEFT(used, again))
			got, err = AdapterPrecision(again)
			require.NoError(t, err)
			require.Equal(t, &p, got, "computing under another contract does not change what it was trained under")

			// Where nothing is quantized the contracts are one.
			moved, err := plain.LoadAdapter(path, uint64(40+id), true)
			require.NoError(t, err)
			require.Equal(t, &f32, moved.Config.Precision, "from now on")
		}
	}
}

func TestRefusedAdapterTakesNoMemory(t *testing.T) {
	m := loaded(t, "llama-Q4_0.gguf", Options{Precision: kernels.PrecisionInt8})
	ad, err := m.NewAdapter(1, weights.AdapterConfig{R: 2, Alpha: 4, TargetModules: []string{"q_proj"}}, 1, false)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, m.SavePEFT(ad, dir))
	other := loaded(t, "llama-Q4_0.gguf", Options{})
	used := other.Arena.Used()
	_, err = other.LoadAdapter(dir, 2, true)
	require.Error(t, err)
	require.Equal(t, used, other.Arena.Used())
}

func TestAdaptersOfOtherProgramsNameNoContract(t *testing.T) {
	m := loaded(t, "llama-Q4_0.gguf", Options{Precision: kernels.PrecisionInt8})
	lora := filepath.Join(golden, "lora.gguf") // made by llama.cpp's converter
	p, err := AdapterPrecision(lora)
	require.NoError(t, err)
	require.Nil(t, p)
	used, err := m.LoadAdapter(lora, 1, false)
	require.NoError(t, err)
	require.Nil(t, used.Config.Precision, "nobody knows")
	require.NoError(t, m.CheckPrecision(used))
	dir := t.TempDir()
	require.NoError(t, m.SavePEFT(used, dir))
	p, err = AdapterPrecision(dir)
	require.NoError(t, err)
	require.Nil(t, p)
	trained, err := m.LoadAdapter(lora, 2, true)
	require.NoError(t, err)
	require.Equal(t, kernels.PrecisionInt8, *trained.Config.Precision, "what trains it decides")
}

func TestUnknownContractsAreRefused(t *testing.T) {
	m := loaded(t, "llama-Q4_0.gguf", Options{})
	dir := t.TempDir()
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, peftFileName), nil, map[string]string{precisionKey: "int4"}))
	_, err := AdapterPrecision(dir)
	require.ErrorContains(t, err, `"int4", which this version does not know`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, peftConfigName), []byte(`{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["q_proj"]}`), 0o666))
	_, err = m.LoadAdapter(dir, 1, false)
	require.ErrorContains(t, err, `"int4"`)

	file := filepath.Join(dir, "lora.gguf")
	write := func(v any) {
		require.NoError(t, gguf.WriteFile(file, []gguf.KV{{Key: "general.type", Value: "adapter"}, {Key: "adapter.type", Value: "lora"},
			{Key: "adapter.lora.alpha", Value: float32(4)}, {Key: precisionKey, Value: v}}, nil))
	}
	write("int4")
	_, err = AdapterPrecision(file)
	require.ErrorContains(t, err, `"int4"`)
	_, err = m.LoadAdapter(file, 1, false)
	require.ErrorContains(t, err, `"int4"`)
	write(uint32(8))
	_, err = AdapterPrecision(file)
	require.ErrorContains(t, err, precisionKey)
	_, err = AdapterPrecision(filepath.Join(dir, "absent"))
	require.Error(t, err)
}
