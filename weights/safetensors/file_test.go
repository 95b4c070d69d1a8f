package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const goldenDir = "../../tests/testdata/golden-hf"

// file returns the bytes of a file with the given header and data.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, data)...)
}

func parseBytes(b []byte) (*File, error) { return Parse(bytes.NewReader(b), int64(len(b))) }

func values(t *testing.T, f *File, name string) []float32 {
	t.Helper()
	x, ok := f.Tensor(name)
	require.True(t, ok, name)
	out := make([]float32, x.Elements())
	require.NoError(t, f.Decode(x, out))
	return out
}

func TestShardsHoldTheSameModel(t *testing.T) {
	one, err := Open(filepath.Join(goldenDir, "models/qwen2"))
	require.NoError(t, err)
	defer one.Close()
	for _, path := range []string{"models/qwen2-sharded", "models/qwen2-sharded/model.safetensors.index.json"} {
		shards, err := Open(filepath.Join(goldenDir, path))
		require.NoError(t, err)
		require.Len(t, shards.Tensors, len(one.Tensors))
		require.Equal(t, "pt", shards.Metadata["format"])
		for i := range one.Tensors {
			name := one.Tensors[i].Name
			require.Equal(t, values(t, one, name), values(t, shards, name), name)
		}
		require.NoError(t, shards.Close())
	}
}

// The tied model and its rounded twin are the same numbers in two types.
func TestDecodeRoundedTwins(t *testing.T) {
	for _, c := range []struct {
		exact, rounded string
		dtype          DType
		relative       float64 // half a unit in the last place
	}{{"llama-tied", "llama-bf16", BF16, 0x1p-8}, {"qwen3", "qwen3-f16", F16, 0x1p-11}} {
		exact, err := Open(filepath.Join(goldenDir, "models", c.exact))
		require.NoError(t, err)
		defer exact.Close()
		rounded, err := Open(filepath.Join(goldenDir, "models", c.rounded))
		require.NoError(t, err)
		defer rounded.Close()
		for i := range exact.Tensors {
			name := exact.Tensors[i].Name
			x, ok := rounded.Tensor(name)
			require.True(t, ok, name)
			require.Equal(t, c.dtype, x.DType)
			got := values(t, rounded, name)
			for j, want := range values(t, exact, name) {
				require.InDelta(t, want, got[j], float64(max(want, -want))*c.relative+0x1p-25, "%s[%d]", name, j)
			}
		}
	}
}

func TestHalf(t *testing.T) {
	for bits, want := range map[uint16]float32{0: 0, 1: 0x1p-24, 0x3ff: 0x1p-14 - 0x1p-24, 0x400: 0x1p-14, 0x3c00: 1, 0x3c01: 1 + 0x1p-10,
		0x7bff: 65504, 0x7c00: float32(math.Inf(1)), 0xc280: -3.25} {
		require.Equal(t, want, half(bits), "%#x", bits)
	}
	require.True(t, math.Signbit(float64(half(0x8000))))
	require.True(t, math.IsNaN(float64(half(0x7e00))))
}

func TestEveryGoldenOpens(t *testing.T) {
	count := 0
	err := filepath.WalkDir(goldenDir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".safetensors") {
			f, err := Open(path)
			require.NoError(t, err, path)
			require.NoError(t, f.Close())
			count++
		}
		return err
	})
	require.NoError(t, err)
	require.Greater(t, count, 60)
}

func TestReadRawBytes(t *testing.T) {
	f, err := Open(filepath.Join(goldenDir, "optim/bnb-nf4-double.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	state, ok := f.Tensor("weight.quant_state.bitsandbytes__nf4")
	require.True(t, ok)
	require.Equal(t, U8, state.DType)
	b := make([]byte, state.Size)
	require.NoError(t, f.ReadAt(state, b, 0))
	var settings struct {
		QuantType string `json:"quant_type"`
	}
	require.NoError(t, json.Unmarshal(b, &settings))
	require.Equal(t, "nf4", settings.QuantType)
	require.ErrorContains(t, f.Decode(state, make([]float32, state.Size)), "has type U8")

	x, _ := f.Tensor("x")
	whole := values(t, f, "x")
	part := make([]float32, 100)
	require.NoError(t, f.DecodeAt(x, part, 50))
	require.Equal(t, whole[50:150], part)
	require.Error(t, f.DecodeAt(x, part, x.Elements()-99))
	require.Error(t, f.DecodeAt(x, part, -1))
	require.Error(t, f.ReadAt(x, b, x.Size))
}

func TestUnreadableTypesAreRefusedOnRead(t *testing.T) {
	f, err := parseBytes(file(`{"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}`, 4))
	require.NoError(t, err, "listing is allowed")
	x, _ := f.Tensor("w")
	require.ErrorContains(t, f.ReadAt(x, make([]byte, 4), 0), `"w" has type F8_E4M3`)
}

func TestParseAccepts(t *testing.T) {
	for name, b := range map[string][]byte{
		"no tensor":         file(`{}`, 0),
		"padding":           file(`{}      `, 0),
		"scalar":            file(`{"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4),
		"empty tensor":      file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]}}`, 4),
		"any order":         file(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},"a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}}`, 5),
		"sub-byte elements": file(`{"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}`, 3),
		"escaped name":      file(`{"\u0061\"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
	} {
		_, err := parseBytes(b)
		require.NoError(t, err, name)
	}
}

// malformed are files that must be refused, with a part of the error.
func malformed() map[string]struct {
	bytes []byte
	want  string
} {
	type row = struct {
		bytes []byte
		want  string
	}
	t := func(body string) string { return `{"a":{` + body + `}}` }
	long := func(n uint64) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), "{}"...) }
	return map[string]row{
		"empty":               {nil, "0 bytes"},
		"seven bytes":         {make([]byte, 7), "7 bytes"},
		"header of 2^63":      {long(1 << 63), "at most"},
		"header of 2^64-1":    {long(math.MaxUint64), "at most"},
		"header above limit":  {long(maxHeader + 1), "at most"},
		"header beyond file":  {long(3), "download complete"},
		"no header":           {file("", 0), "not a JSON object"},
		"array":               {file("[]", 0), "not a JSON object"},
		"leading space":       {file(" {}", 0), "not a JSON object"},
		"cut":                 {file(`{"a"`, 0), "header"},
		"not UTF-8":           {file("{\"\xff\":1}", 0), "UTF-8"},
		"two values":          {file("{}{}", 0), "after the JSON"},
		"NUL padding":         {file("{}\x00", 0), "after the JSON"},
		"hole before":         {file(t(`"dtype":"U8","shape":[1],"data_offsets":[1,2]`), 2), "starts at byte 1"},
		"hole after":          {file(t(`"dtype":"U8","shape":[1],"data_offsets":[0,1]`), 2), "end at byte 1"},
		"data of no tensor":   {file(`{}`, 1), "end at byte 0"},
		"beyond file":         {file(t(`"dtype":"U8","shape":[3],"data_offsets":[0,3]`), 2), "after the file"},
		"overlap":             {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), "starts at byte 1"},
		"same bytes":          {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2), "starts at byte 0"},
		"backwards":           {file(t(`"dtype":"U8","shape":[1],"data_offsets":[1,0]`), 1), "[begin, end]"},
		"negative offset":     {file(t(`"dtype":"U8","shape":[1],"data_offsets":[-1,0]`), 1), "natural"},
		"float offset":        {file(t(`"dtype":"U8","shape":[1],"data_offsets":[0,1.0]`), 1), "natural"},
		"exponent":            {file(t(`"dtype":"U8","shape":[1],"data_offsets":[0,1e0]`), 1), "natural"},
		"offset of 2^64":      {file(t(`"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]`), 1), "natural"},
		"offset of 2^63":      {file(t(`"dtype":"U8","shape":[1],"data_offsets":[0,9223372036854775808]`), 1), "natural"},
		"one offset":          {file(t(`"dtype":"U8","shape":[1],"data_offsets":[0]`), 1), "[begin, end]"},
		"three offsets":       {file(t(`"dtype":"U8","shape":[1],"data_offsets":[0,1,2]`), 1), "more than 2"},
		"string offset":       {file(t(`"dtype":"U8","shape":[1],"data_offsets":["0",1]`), 1), "want a number"},
		"wrong size":          {file(t(`"dtype":"F32","shape":[2],"data_offsets":[0,4]`), 4), "takes 8"},
		"shape overflow":      {file(t(`"dtype":"U8","shape":[4294967296,4294967296,2],"data_offsets":[0,0]`), 0), "overflows"},
		"bits overflow":       {file(t(`"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0]`), 0), "overflows"},
		"negative dimension":  {file(t(`"dtype":"U8","shape":[-1],"data_offsets":[0,1]`), 1), "natural"},
		"half a byte":         {file(t(`"dtype":"F4","shape":[1],"data_offsets":[0,1]`), 1), "whole bytes"},
		"too many dimensions": {file(t(`"dtype":"U8","shape":[1`+strings.Repeat(",1", 64)+`],"data_offsets":[0,1]`), 1), "more than 64"},
		"unknown type":        {file(t(`"dtype":"F33","shape":[1],"data_offsets":[0,1]`), 1), `"F33"`},
		"type of null":        {file(t(`"dtype":null,"shape":[1],"data_offsets":[0,1]`), 1), "want a string"},
		"missing field":       {file(t(`"dtype":"U8","shape":[1]`), 0), "needed"},
		"unknown field":       {file(t(`"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1`), 1), "not a field"},
		"duplicate tensor":    {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "twice"},
		"duplicate escaped":   {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "twice"},
		"duplicate field":     {file(t(`"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]`), 1), "twice"},
		"duplicate metadata":  {file(`{"__metadata__":{},"__metadata__":{}}`, 0), "twice"},
		"duplicate note":      {file(`{"__metadata__":{"a":"","a":""}}`, 0), "twice"},
		"metadata number":     {file(`{"__metadata__":{"a":1}}`, 0), "want a string"},
		"deep JSON":           {file(`{"a":`+strings.Repeat("[", 1<<20), 0), "want {"},
		"deep shape":          {file(t(`"dtype":"U8","shape":`+strings.Repeat("[", 1<<20)), 0), "want a number"},
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range malformed() {
		_, err := parseBytes(c.bytes)
		assert.ErrorContains(t, err, c.want, name)
	}
}

func TestIndexRefuses(t *testing.T) {
	for src, want := range map[string]string{
		`{"weight_map":{"a":"../model.safetensors"}}`:         "same folder",
		`{"weight_map":{"a":"/etc/model.safetensors"}}`:       "same folder",
		`{"weight_map":{"a":"sub/model.safetensors"}}`:        "same folder",
		`{"weight_map":{"a":"sub\\model.safetensors"}}`:       "same folder",
		`{"weight_map":{"a":"c:model.safetensors"}}`:          "same folder",
		`{"weight_map":{"a":""}}`:                             "same folder",
		`{"weight_map":{"a":"pytorch_model.bin"}}`:            "same folder",
		`{"weight_map":{"a":1}}`:                              "want a string",
		`{"weight_map":{}}`:                                   "no weight_map",
		`{"metadata":{"deep":` + strings.Repeat("[", 1<<20):   "EOF",
		`{"metadata":{}}`:                                     "no weight_map",
		`{"weight_map":{"a":"x.safetensors"},"weight_map":{}`: "twice",
		`[]`: "want {",
		``:   "EOF",
	} {
		_, err := parseIndex([]byte(src))
		assert.ErrorContains(t, err, want, "%.60s", src)
	}
}

func TestOpenIndexChecksItsShards(t *testing.T) {
	dir := t.TempDir()
	put := func(name, header string, data int) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), file(header, data), 0o644))
	}
	index := func(s string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, indexName), []byte(s), 0o644))
	}
	_, err := Open(dir)
	require.ErrorContains(t, err, "has neither")
	put("1.safetensors", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)
	index(`{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`)
	_, err = Open(dir)
	require.ErrorContains(t, err, "2.safetensors")
	put("2.safetensors", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)
	_, err = Open(dir)
	require.ErrorContains(t, err, "in two shards")
	put("2.safetensors", `{"c":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)
	_, err = Open(dir)
	require.ErrorContains(t, err, `"b" is not in 2.safetensors`)
	put("2.safetensors", `{"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)
	f, err := Open(dir)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none.safetensors"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(os.DevNull)
	require.ErrorContains(t, err, "not a regular file")
}
