package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/kernels/quant"
)

func parseBytes(b []byte) (*File, error) { return Parse(bytes.NewReader(b), int64(len(b))) }

// contents returns what it takes to write f again.
func contents(f *File) ([]KV, []TensorData) {
	var kvs []KV
	for _, k := range f.Keys {
		kvs = append(kvs, KV{k, f.KV[k]})
	}
	var tensors []TensorData
	for i := range f.Tensors {
		t := &f.Tensors[i]
		tensors = append(tensors, TensorData{t.Name, t.Dims, t.Format, func(w io.Writer) error {
			b := make([]byte, t.Size)
			if err := f.ReadAt(t, b, 0); err != nil {
				return err
			}
			_, err := w.Write(b)
			return err
		}})
	}
	return kvs, tensors
}

// The golden files come from another writer; ours makes the same bytes.
func TestWriteRepeatsGoldens(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(goldenDir, "*.gguf"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		f, err := Open(path)
		require.NoError(t, err)
		kvs, tensors := contents(f)
		copied := filepath.Join(t.TempDir(), "copy.gguf")
		require.NoError(t, WriteFile(copied, kvs, tensors))
		require.NoError(t, f.Close())
		got, err := os.ReadFile(copied)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s: %d bytes, want %d", path, len(got), len(want))
	}
}

// zeroTensor is a tensor of zeros.
func zeroTensor(name string, format quant.Format, dims ...uint64) TensorData {
	n := 1
	for _, d := range dims {
		n *= int(d)
	}
	return TensorData{name, dims, format, func(w io.Writer) error {
		_, err := w.Write(make([]byte, format.Bytes(n)))
		return err
	}}
}

func everyValue() []KV {
	return []KV{
		{"u8", uint8(255)}, {"i8", int8(-128)}, {"u16", uint16(65535)}, {"i16", int16(-32768)}, {"u32", uint32(math.MaxUint32)}, {"i32", int32(math.MinInt32)},
		{"f32", float32(-1.5)}, {"bool", true}, {"string", "h\u00e9llo\x00"}, {"u64", uint64(math.MaxUint64)}, {"i64", int64(math.MinInt64)}, {"f64", math.Pi},
		{"u8s", []uint8{1, 2}}, {"i8s", []int8{-1}}, {"u16s", []uint16{7}}, {"i16s", []int16{-7}}, {"u32s", []uint32{8}}, {"i32s", []int32{-8, 9}},
		{"f32s", []float32{0.5, 2}}, {"bools", []bool{true, false}}, {"strings", []string{"", "a", strings.Repeat("b", 300000)}}, {"u64s", []uint64{math.MaxUint64}},
		{"i64s", []int64{-9}}, {"f64s", []float64{1e300}}, {"none", []string{}},
	}
}

func TestEveryValueSurvives(t *testing.T) {
	var b bytes.Buffer
	kvs := everyValue()
	require.NoError(t, Write(&b, kvs, nil))
	f, err := parseBytes(b.Bytes())
	require.NoError(t, err)
	for i, kv := range kvs {
		require.Equal(t, kv.Key, f.Keys[i])
		require.Equal(t, kv.Value, f.KV[kv.Key])
	}
}

func TestGetters(t *testing.T) {
	f := &File{KV: map[string]any{}}
	for _, kv := range everyValue() {
		f.KV[kv.Key] = kv.Value
	}
	for _, key := range []string{"u8", "u16", "u32", "i8", "i16", "i32", "i64"} {
		n, err := f.Int(key)
		require.NoError(t, err, key)
		require.Equal(t, fmt.Sprint(f.KV[key]), fmt.Sprint(n))
	}
	u, err := f.Uint("u64")
	require.NoError(t, err)
	require.EqualValues(t, uint64(math.MaxUint64), u)
	_, err = f.Int("u64")
	require.ErrorContains(t, err, "too large")
	_, err = f.Uint("i8")
	require.ErrorContains(t, err, `key "i8": is int8 (-128), want a non-negative integer`)
	_, err = f.Int("f32")
	require.ErrorContains(t, err, `key "f32": is float32 (-1.5), want an integer`)
	x, err := f.Float("i32")
	require.NoError(t, err)
	require.EqualValues(t, math.MinInt32, x)
	x, err = f.Float("f64")
	require.NoError(t, err)
	require.Equal(t, math.Pi, x)
	_, err = f.Float("string")
	require.ErrorContains(t, err, `"string"`)
	_, err = f.Str("absent")
	require.EqualError(t, err, `gguf: key "absent" is missing`)
	s, err := f.StrOr("absent", "default")
	require.NoError(t, err)
	require.Equal(t, "default", s)
	_, err = f.StrOr("bool", "default")
	require.ErrorContains(t, err, `key "bool": is bool (true), want string`)
	ok, err := f.Bool("bool")
	require.NoError(t, err)
	require.True(t, ok)
	ints, err := f.Ints("i32s")
	require.NoError(t, err)
	require.Equal(t, []int{-8, 9}, ints)
	_, err = f.Ints("u64s")
	require.ErrorContains(t, err, "too large")
	_, err = f.Ints("strings")
	require.ErrorContains(t, err, "array of integers")
	floats, err := f.Floats("f32s")
	require.NoError(t, err)
	require.Equal(t, []float32{0.5, 2}, floats)
	floats, err = f.FloatsOr("absent", nil)
	require.NoError(t, err)
	require.Nil(t, floats)
	bools, err := f.BoolsOr("bools", nil)
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, bools)
	strs, err := f.Strings("strings")
	require.NoError(t, err)
	require.Len(t, strs, 3)
	for key, get := range map[string]func(string) error{
		"UintOr":    func(k string) error { n, err := f.UintOr(k, 7); require.EqualValues(t, 7, n); return err },
		"IntOr":     func(k string) error { n, err := f.IntOr(k, -7); require.Equal(t, -7, n); return err },
		"FloatOr":   func(k string) error { n, err := f.FloatOr(k, .5); require.Equal(t, .5, n); return err },
		"BoolOr":    func(k string) error { n, err := f.BoolOr(k, true); require.True(t, n); return err },
		"IntsOr":    func(k string) error { n, err := f.IntsOr(k, []int{1}); require.Equal(t, []int{1}, n); return err },
		"StringsOr": func(k string) error { n, err := f.StringsOr(k, []string{"x"}); require.Len(t, n, 1); return err },
	} {
		require.NoError(t, get("absent"), key)
	}
}

func TestAlignmentIsKept(t *testing.T) {
	for _, alignment := range []uint32{1, 8, 64, 4096} {
		var b bytes.Buffer
		kvs := []KV{{"general.alignment", alignment}}
		require.NoError(t, Write(&b, kvs, []TensorData{zeroTensor("a", quant.F32, 3), zeroTensor("b", quant.Q4_0, 32, 3)}))
		f, err := parseBytes(b.Bytes())
		require.NoError(t, err)
		require.EqualValues(t, alignment, f.Alignment)
		for _, x := range f.Tensors {
			require.Zero(t, x.Offset%int64(alignment))
		}
		require.Zero(t, b.Len()%int(alignment))
	}
}

func TestWriteRefuses(t *testing.T) {
	a := zeroTensor("a", quant.F32, 4)
	short, long, broken := a, a, a
	short.WriteTo = func(w io.Writer) error { _, err := w.Write(make([]byte, 15)); return err }
	long.WriteTo = func(w io.Writer) error { _, err := w.Write(make([]byte, 17)); return err }
	broken.WriteTo = func(io.Writer) error { return errors.New("disk on fire") }
	for want, c := range map[string]struct {
		kvs     []KV
		tensors []TensorData
	}{
		`key "k" appears twice`:       {kvs: []KV{{"k", true}, {"k", false}}},
		"a key of 0 bytes":            {kvs: []KV{{"", true}}},
		"type int cannot be stored":   {kvs: []KV{{"k", 1}}},
		"want a power of two":         {kvs: []KV{{"general.alignment", uint32(3)}}},
		"want uint32":                 {kvs: []KV{{"general.alignment", uint64(32)}}},
		`tensor "a" appears twice`:    {tensors: []TensorData{a, a}},
		"a name of 64 bytes":          {tensors: []TensorData{zeroTensor(strings.Repeat("n", 64), quant.F32, 1)}},
		"5 dimensions":                {tensors: []TensorData{zeroTensor("a", quant.F32, 1, 1, 1, 1, 1)}},
		"0 dimensions":                {tensors: []TensorData{zeroTensor("a", quant.F32)}},
		"do not divide into":          {tensors: []TensorData{{"a", []uint64{33}, quant.Q4_0, nil}}},
		"15 bytes written, want 16":   {tensors: []TensorData{short}},
		"1 bytes more":                {tensors: []TensorData{long}},
		`tensor "a": disk on fire`:    {tensors: []TensorData{broken}},
		"dimensions [4294967296 4294": {tensors: []TensorData{{"a", []uint64{1 << 32, 1 << 32}, quant.F32, nil}}},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "x.gguf")
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
		require.ErrorContains(t, WriteFile(path, c.kvs, c.tensors), want)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, left, 1, "%s: a partial file is left", want)
		old, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "old", string(old))
	}
}

// vocabulary is the header of a model with n tokens.
func vocabulary(tb testing.TB, n int) []byte {
	tokens, merges, scores, types := make([]string, n), make([]string, n), make([]float32, n), make([]int32, n)
	for i := range tokens {
		tokens[i], merges[i] = fmt.Sprintf("token%d", i), fmt.Sprintf("to ken%d", i)
	}
	var b bytes.Buffer
	require.NoError(tb, Write(&b, []KV{{"tokenizer.ggml.tokens", tokens}, {"tokenizer.ggml.merges", merges}, {"tokenizer.ggml.scores", scores}, {"tokenizer.ggml.token_type", types}}, nil))
	return b.Bytes()
}

func TestLargeVocabularyTakesFewAllocations(t *testing.T) {
	b := vocabulary(t, 260000)
	n := testing.AllocsPerRun(1, func() {
		if _, err := parseBytes(b); err != nil {
			t.Fatal(err)
		}
	})
	require.Less(t, n, 1000.0)
}

func BenchmarkParse(b *testing.B) {
	src := vocabulary(b, 260000)
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		if _, err := parseBytes(src); err != nil {
			b.Fatal(err)
		}
	}
}

// shards writes a model of n tensors over as many shards and returns the path of one.
func shards(t *testing.T, n int, change func(i int, kvs []KV, tensors []TensorData) ([]KV, []TensorData)) string {
	dir := t.TempDir()
	var path string
	for i := range n {
		kvs := []KV{{"split.no", uint16(i)}, {"split.count", uint16(n)}, {"split.tensors.count", int32(n)}}
		if i == 0 {
			kvs = append(kvs, KV{"general.name", "whole"})
		}
		x := TensorData{fmt.Sprintf("t%d", i), []uint64{4}, quant.F32, func(w io.Writer) error {
			b := make([]byte, 16)
			quant.Encode(b, quant.F32, []float32{float32(i), 1, 2, 3})
			_, err := w.Write(b)
			return err
		}}
		tensors := []TensorData{x}
		if change != nil {
			kvs, tensors = change(i, kvs, tensors)
		}
		path = filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, n))
		require.NoError(t, WriteFile(path, kvs, tensors))
	}
	return path
}

func TestShardsOpenTogether(t *testing.T) {
	f, err := Open(shards(t, 3, nil)) // the path of the last
	require.NoError(t, err)
	require.Len(t, f.Tensors, 3)
	name, err := f.Str("general.name")
	require.NoError(t, err)
	require.Equal(t, "whole", name)
	for i := range 3 {
		x, ok := f.Tensor(fmt.Sprintf("t%d", i))
		require.True(t, ok)
		got := make([]float32, 4)
		require.NoError(t, f.Decode(x, got))
		require.EqualValues(t, i, got[0])
	}
	require.NoError(t, f.Close())
	require.NoError(t, f.Close(), "closing twice is harmless")
	x, _ := f.Tensor("t1")
	require.ErrorIs(t, f.ReadAt(x, make([]byte, 1), 0), os.ErrClosed)
}

func TestShardsAreChecked(t *testing.T) {
	type change = func(i int, kvs []KV, tensors []TensorData) ([]KV, []TensorData)
	for want, c := range map[string]change{
		"in two shards": func(i int, kvs []KV, x []TensorData) ([]KV, []TensorData) { x[0].Name = "same"; return kvs, x },
		"split.no is 0": func(i int, kvs []KV, x []TensorData) ([]KV, []TensorData) { kvs[0].Value = uint16(0); return kvs, x },
		"one of 9 shards": func(i int, kvs []KV, x []TensorData) ([]KV, []TensorData) {
			kvs[1].Value = uint16(9)
			return kvs, x
		},
		"split.tensors.count is 5": func(i int, kvs []KV, x []TensorData) ([]KV, []TensorData) {
			kvs[2].Value = int32(5)
			return kvs, x
		},
	} {
		_, err := Open(shards(t, 2, c))
		require.ErrorContains(t, err, want)
	}
	path := shards(t, 2, nil)
	require.NoError(t, os.Remove(path))
	_, err := Open(path)
	require.ErrorIs(t, err, os.ErrNotExist)

	alone := filepath.Join(t.TempDir(), "renamed.gguf")
	require.NoError(t, os.Rename(shards(t, 2, nil), alone))
	_, err = Open(alone)
	require.ErrorContains(t, err, "one of 2 shards, but 1 by its name; shards are named NAME-00001-of-00002.gguf")
	b, err := os.ReadFile(alone)
	require.NoError(t, err)
	_, err = parseBytes(b)
	require.ErrorContains(t, err, "one of 2 shards")
	_, err = Open("m-00003-of-00002.gguf")
	require.ErrorContains(t, err, "shard 3 of 2")
	_, err = Open(os.DevNull)
	require.ErrorContains(t, err, "not a regular file")
}
