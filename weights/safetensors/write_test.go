package safetensors

import (
	"bytes"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contents returns the tensors of f, to be written again.
func contents(f *File) []TensorData {
	var out []TensorData
	for i := range f.Tensors {
		t := &f.Tensors[i]
		out = append(out, TensorData{t.Name, t.DType, t.Shape, func(w io.Writer) error {
			_, err := io.Copy(w, io.NewSectionReader(f.sources[t.shard].r, t.Offset, t.Size))
			return err
		}})
	}
	return out
}

// The goldens were written by the reference library; ours makes the same bytes.
func TestWriteRepeatsGoldens(t *testing.T) {
	count := 0
	err := filepath.WalkDir(goldenDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".safetensors") {
			return err
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		f, err := parseBytes(want)
		require.NoError(t, err)
		tensors := contents(f)
		for i, j := 0, len(tensors)-1; i < j; i, j = i+1, j-1 { // the order given must not matter
			tensors[i], tensors[j] = tensors[j], tensors[i]
		}
		var got bytes.Buffer
		require.NoError(t, Write(&got, tensors, f.Metadata))
		require.True(t, bytes.Equal(want, got.Bytes()), path)
		count++
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, count, 60)
}

// These bytes are those of the reference library's own tests.
func TestWriteMatchesReferenceBytes(t *testing.T) {
	ones := []float32{0, 1, 2, 3, 4, 5}
	data := "\x00\x00\x00\x00\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40\x00\x00\xa0\x40"
	for want, c := range map[string]struct {
		tensors  []TensorData
		metadata map[string]string
	}{
		"\x08\x00\x00\x00\x00\x00\x00\x00{}      ":                                       {nil, nil},
		"\x28\x00\x00\x00\x00\x00\x00\x00{\"__metadata__\":{\"framework\":\"pt\"}}     ": {nil, map[string]string{"framework": "pt"}},
		"\x40\x00\x00\x00\x00\x00\x00\x00{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}" + data: {
			[]TensorData{Float32s("attn.0", []int{1, 2, 3}, ones)}, nil},
		"\x48\x00\x00\x00\x00\x00\x00\x00{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,1,2,3],\"data_offsets\":[0,24]}}       " + data: {
			[]TensorData{Float32s("attn0", []int{1, 1, 2, 3}, ones)}, nil},
	} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, c.tensors, c.metadata))
		require.Equal(t, want, b.String())
	}
}

func TestWriteFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	big := make([]float32, 40000)
	for i := range big {
		big[i] = float32(i) / 3
	}
	metadata := map[string]string{"format": "pt", "a<b>&\u2028": "\"\\\n\x00é"}
	raw := func(d DType, b ...byte) TensorData {
		return TensorData{"raw " + d.String(), d, []int{len(b) * 8 / d.Bits()}, func(w io.Writer) error { _, err := w.Write(b); return err }}
	}
	require.NoError(t, WriteFile(path, []TensorData{
		Float32s("scalar", nil, []float32{float32(math.Inf(-1))}), Float32s("empty", []int{0, 3}, nil), Float32s("big/é", []int{200, 200}, big),
		raw(U8, 1, 2, 3), raw(I64, 1, 2, 3, 4, 5, 6, 7, 8), raw(BF16, 0x80, 0x3f), raw(F16, 0, 0x3c, 0, 0xc0),
	}, metadata))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, metadata, f.Metadata)
	require.Equal(t, big, values(t, f, "big/é"))
	require.Equal(t, []float32{float32(math.Inf(-1))}, values(t, f, "scalar"))
	require.Empty(t, values(t, f, "empty"))
	require.Equal(t, []float32{1}, values(t, f, "raw BF16"))
	require.Equal(t, []float32{1, -2}, values(t, f, "raw F16"))
	require.Equal(t, "raw I64", f.Tensors[0].Name, "the widest elements come first")
	for _, x := range f.Tensors {
		require.Zero(t, x.Offset%int64(x.DType.Bits()/8), x.Name)
	}
}

func TestWriteRefuses(t *testing.T) {
	a := Float32s("a", []int{4}, make([]float32, 4))
	short, long := Float32s("a", []int{4}, make([]float32, 3)), Float32s("a", []int{4}, make([]float32, 5))
	for want, c := range map[string]struct {
		tensors  []TensorData
		metadata map[string]string
	}{
		`tensor "a" appears twice`: {[]TensorData{a, a}, nil},
		"a name that is taken":     {[]TensorData{Float32s("__metadata__", nil, []float32{1})}, nil},
		"12 bytes written":         {[]TensorData{short}, nil},
		"4 bytes more":             {[]TensorData{long}, nil},
		"shape [-1]":               {[]TensorData{Float32s("a", []int{-1}, nil)}, nil},
		"overflows":                {[]TensorData{Float32s("a", []int{1 << 62}, nil)}, nil},
		"not UTF-8":                {[]TensorData{Float32s("\xff", nil, []float32{1})}, nil},
		`"\xfe" is not UTF-8`:      {nil, map[string]string{"k": "\xfe"}},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "x.safetensors")
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
		require.ErrorContains(t, WriteFile(path, c.tensors, c.metadata), want)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, left, 1, "%s: a partial file is left", want)
		old, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "old", string(old))
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range malformed() {
		if len(c.bytes) < 1<<16 {
			f.Add(c.bytes)
		}
	}
	for _, path := range []string{"optim/bnb-nf4-ragged.safetensors", "lora/llama-attn-layer1/adapter_model.safetensors"} {
		b, err := os.ReadFile(filepath.Join(goldenDir, path))
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add(file(`{"__metadata__":{"a":"b"},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F4","shape":[0,2],"data_offsets":[4,4]}}`, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := parseBytes(b)
		if err != nil {
			return
		}
		// What parses covers its bytes and can be written again as the same tensors.
		total := int64(0)
		for i := range file.Tensors {
			total += file.Tensors[i].Size
		}
		require.Less(t, total, int64(len(b)))
		var out bytes.Buffer
		require.NoError(t, Write(&out, contents(file), file.Metadata))
		again, err := parseBytes(out.Bytes())
		require.NoError(t, err)
		require.Equal(t, file.Metadata, again.Metadata)
		require.Len(t, again.Tensors, len(file.Tensors))
		for _, x := range again.Tensors {
			y, ok := file.Tensor(x.Name)
			require.True(t, ok)
			require.Equal(t, y.Shape, x.Shape)
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"a":"m-1.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../m.safetensors"}}`))
	f.Add([]byte(`{"x":[[[{"y":null}]]],"weight_map":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		weights, err := parseIndex(b)
		if err != nil {
			return
		}
		for _, name := range weights {
			require.Equal(t, name, filepath.Base(name), "a file outside the folder")
		}
	})
}
