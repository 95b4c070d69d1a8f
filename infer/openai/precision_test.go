package openai

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/infer"
	"graft/kernels"
)

func TestAdaptersOfAnotherContractAreRefusedUnlessAskedFor(t *testing.T) {
	s := newSite(t, Options{LoadAdapters: true}, infer.Options{}) // under f32
	ad := s.tune(100, 1)
	dir := t.TempDir()
	require.NoError(t, s.engine.Exclusive(context.Background(), func() error {
		ad.Config.Precision = new(kernels.PrecisionInt8)
		return s.m.SavePEFT(ad, dir)
	}))
	used := s.m.Arena.Used()
	load := func() *reply {
		return s.do("POST", "/v1/load_lora_adapter", fmt.Sprintf(`{"lora_name":"a","lora_path":%q}`, dir))
	}
	refused := load()
	require.Equal(t, 400, refused.status)
	require.Contains(t, string(refused.raw), "trained under precision int8, and the model was loaded under f32")
	s.clean()
	require.Equal(t, used, s.m.Arena.Used(), "a refused adapter takes nothing")

	_, err := New(s.engine, Options{Names: []string{"base"}, Adapters: []Adapter{{Name: "a", Adapter: ad}}})
	require.ErrorContains(t, err, "adapter a: ")
	require.ErrorContains(t, err, "trained under precision int8")

	anyway := newSite(t, Options{LoadAdapters: true, AnyPrecision: true}, infer.Options{})
	require.Equal(t, 200, anyway.do("POST", "/v1/load_lora_adapter", fmt.Sprintf(`{"lora_name":"a","lora_path":%q}`, dir)).status)
}
