package gguf

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// raw builds files by hand, also wrong ones.
type raw []byte

func header(version uint32, tensors, kvs uint64) raw {
	b := raw("GGUF").u32(version)
	return b.u64(tensors).u64(kvs)
}
func (b raw) u8(x uint8) raw   { return append(b, x) }
func (b raw) u32(x uint32) raw { return binary.LittleEndian.AppendUint32(b, x) }
func (b raw) u64(x uint64) raw { return binary.LittleEndian.AppendUint64(b, x) }
func (b raw) str(s string) raw { return append(b.u64(uint64(len(s))), s...) }
func (b raw) tensor(name string, typ uint32, offset uint64, dims ...uint64) raw {
	b = b.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		b = b.u64(d)
	}
	return b.u32(typ).u64(offset)
}
func (b raw) data(n int) raw {
	for len(b)%32 != 0 {
		b = append(b, 0)
	}
	return append(b, make([]byte, n)...)
}

type refused struct {
	bytes []byte
	want  string // part of the error
}

// malformed are files that must be refused: the checks of llama.cpp and the
// classes of its published holes.
func malformed() map[string]refused {
	const huge = math.MaxUint64
	one := func() raw { return header(3, 0, 1) }
	infos := func(n uint64) raw { return header(3, n, 0) }
	return map[string]refused{
		"empty":                       {nil, "ends at byte 0"},
		"four bytes":                  {[]byte("GGUF"), "ends at byte 4"},
		"other magic":                 {raw("GGML").u32(3).u64(0).u64(0), "not a GGUF file"},
		"version 1":                   {header(1, 0, 0), "version 1"},
		"version 4":                   {header(4, 0, 0), "version 4"},
		"big-endian":                  {header(3<<24, 0, 0), "big-endian"},
		"version 0":                   {header(0, 0, 0), "big-endian"},
		"2^64-1 tensors":              {header(3, huge, 0), "do not fit"},
		"2^64-1 keys":                 {header(3, 0, huge), "do not fit"},
		"tensors beyond file":         {header(3, 100, 0), "do not fit"},
		"cut key":                     {one().u64(5), "do not fit"},
		"empty key":                   {one().str("").u32(4).u32(1), "is empty"},
		"key longer than file":        {one().u64(1000).u64(0), "1000 bytes"},
		"key of 2^64-1 bytes":         {one().u64(huge).u64(0), "at most"},
		"key of 65536 bytes":          {one().str(strings.Repeat("k", 65536)).u32(0).u8(0), "at most 65535"},
		"duplicate key":               {header(3, 0, 2).str("k").u32(0).u8(0).str("k").u32(0).u8(0), `"k" appears twice`},
		"value type 13":               {one().str("k").u32(13).u64(0), `"k": value type 13`},
		"bool of 2":                   {one().str("k").u32(7).u8(2), "bool of value 2"},
		"cut value":                   {one().str("key").u32(10).u32(0), "ends at byte"},
		"string longer than file":     {one().str("k").u32(8).u64(4).u8(0), "4 bytes"},
		"string of 2^64-1":            {one().str("k").u32(8).u64(huge), "at most"},
		"string of 2^63":              {one().str("k").u32(8).u64(1 << 63), "at most"},
		"array of arrays":             {one().str("k").u32(9).u32(9).u64(0), "array of arrays"},
		"array of type 99":            {one().str("k").u32(9).u32(99).u64(0), "array of value type 99"},
		"array of 2^64-1":             {one().str("k").u32(9).u32(0).u64(huge), "at most"},
		"array of 2^30+1":             {one().str("k").u32(9).u32(0).u64(1<<30 + 1), "at most"},
		"array beyond file":           {one().str("k").u32(9).u32(12).u64(3).u64(0), "does not fit"},
		"strings beyond file":         {one().str("k").u32(9).u32(8).u64(1 << 29).u64(0), "does not fit"},
		"cut string in array":         {one().str("k").u32(9).u32(8).u64(2).str("a").u64(9), "string 1 of 2"},
		"bools of 2":                  {one().str("k").u32(9).u32(7).u64(2).u8(1).u8(2), "bool of value 2"},
		"alignment 0":                 {one().str("general.alignment").u32(4).u32(0), "power of two"},
		"alignment 3":                 {one().str("general.alignment").u32(4).u32(3), "power of two"},
		"alignment 2^31":              {one().str("general.alignment").u32(4).u32(1 << 31), "power of two"},
		"alignment 2^63":              {one().str("general.alignment").u32(10).u64(1 << 63), "want uint32"},
		"alignment of text":           {one().str("general.alignment").u32(8).str("32"), "want uint32"},
		"no name":                     {infos(1).tensor("", 0, 0, 1).data(4), "has no name"},
		"name of 64 bytes":            {infos(1).tensor(strings.Repeat("n", 64), 0, 0, 1).data(4), "at most 63"},
		"duplicate tensor":            {infos(2).tensor("t", 0, 0, 1).tensor("t", 0, 32, 1).data(64), `"t" appears twice`},
		"0 dimensions":                {infos(1).tensor("t", 0, 0).u64(0).data(4), "0 dimensions"},
		"5 dimensions":                {infos(1).tensor("t", 0, 0, 1, 1, 1, 1, 1).data(4), "5 dimensions"},
		"2^32-1 dimensions":           {infos(1).str("t").u32(math.MaxUint32).data(32), "4294967295 dimensions"},
		"dimension 0":                 {infos(1).tensor("t", 0, 0, 4, 0).data(4), "is 0"},
		"dimension 2^63":              {infos(1).tensor("t", 0, 0, 1<<63).data(4), "overflow"},
		"2^63 elements in few bytes":  {infos(1).tensor("t", 2, 0, 1<<63).data(18), "overflow"},
		"product overflow":            {infos(1).tensor("t", 0, 0, 1<<32, 1<<32).data(4), "overflow"},
		"product wraps to small":      {infos(1).tensor("t", 0, 0, 1<<32, 1<<31, 2).data(4), "overflow"},
		"byte overflow":               {infos(1).tensor("t", 0, 0, 1<<62).data(4), "overflow"},
		"ragged rows":                 {infos(1).tensor("t", 2, 0, 33, 32).data(600), "33 elements do not divide"},
		"IQ2_XS":                      {infos(1).tensor("t", 17, 0, 256).data(74), `tensor "t": type IQ2_XS (17), which Graft cannot read; convert the model to one of [F32`},
		"removed type":                {infos(1).tensor("t", 4, 0, 32).data(20), "Q4_2 (removed from ggml) (4)"},
		"type 2^32-1":                 {infos(1).tensor("t", math.MaxUint32, 0, 32).data(20), "unknown (4294967295)"},
		"offset beyond file":          {infos(1).tensor("t", 0, 32, 1).data(36), "offset 32, want 0"},
		"offset 2^64-1":               {infos(1).tensor("t", 0, huge, 1).data(36), "beyond any file"},
		"overlap":                     {infos(2).tensor("t", 0, 0, 16).tensor("u", 0, 32, 1).data(100), "offset 32, want 64"},
		"hole":                        {infos(2).tensor("t", 0, 0, 1).tensor("u", 0, 64, 1).data(100), "offset 64, want 32"},
		"data cut":                    {infos(1).tensor("t", 0, 0, 2).data(7), "download complete"},
		"no data":                     {infos(1).tensor("t", 0, 0, 2), "download complete"},
		"sizes sum over 2^63":         {infos(2).tensor("t", 0, 0, 1<<60).tensor("u", 0, 1<<62, 1<<60).data(8), "download complete"},
		"tensor larger than any file": {infos(1).tensor("t", 0, 0, 1<<60).data(8), "download complete"},
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range malformed() {
		_, err := parseBytes(c.bytes)
		assert.ErrorContains(t, err, c.want, name)
	}
	_, err := Parse(bytes.NewReader(nil), -1)
	require.ErrorContains(t, err, "-1 bytes")
}

func TestParseAccepts(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing inside":       header(3, 0, 0),
		"version 2":            header(2, 0, 0),
		"last padding missing": header(3, 1, 0).tensor("t", 0, 0, 1).data(4),
		"empty array":          header(3, 0, 1).str("k").u32(9).u32(8).u64(0),
	} {
		_, err := parseBytes(b)
		require.NoError(t, err, name)
	}
}

// A file cut at any byte of its header is an error, never a panic or a success.
func TestEveryTruncationIsRefused(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(goldenDir, "llama-Q4_0.gguf"))
	require.NoError(t, err)
	f, err := parseBytes(b)
	require.NoError(t, err)
	for n := range f.DataOffset {
		_, err := parseBytes(b[:n])
		require.Error(t, err, "cut to %d bytes", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range malformed() {
		f.Add(c.bytes)
	}
	for _, name := range []string{"llama-Q4_0.gguf", "lora.gguf"} {
		b, err := os.ReadFile(filepath.Join(goldenDir, name))
		require.NoError(f, err)
		f.Add(b)
	}
	var every bytes.Buffer
	kvs := everyValue()
	kvs[20].Value = []string{"", "short"}
	require.NoError(f, Write(&every, kvs, nil))
	f.Add(every.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := parseBytes(b)
		if err != nil {
			return
		}
		// What parses can be read whole, and written again as the same model.
		kvs, tensors := contents(file)
		var out bytes.Buffer
		require.NoError(t, Write(&out, kvs, tensors))
		again, err := parseBytes(out.Bytes())
		require.NoError(t, err)
		require.Equal(t, file.Keys, again.Keys)
		require.Len(t, again.Tensors, len(file.Tensors))
	})
}
