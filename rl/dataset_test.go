package rl

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"graft/spelling"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
)

// file writes a file into a fresh folder and returns its path.
func file(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

type parquetMessage struct {
	Role    string `parquet:"role"`
	Content string `parquet:"content"`
}

type parquetRow struct {
	Question string           `parquet:"question"`
	Answer   *string          `parquet:"answer,optional"`
	N        int32            `parquet:"n"`
	Prompt   []parquetMessage `parquet:"prompt,list"`
}

func gzipped(t testing.TB, s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(s))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func zstandard(t testing.TB, s string) string {
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return string(w.EncodeAll([]byte(s), nil))
}

func parquetFile(t testing.TB) string {
	var b bytes.Buffer
	answer := "4"
	w := parquet.NewGenericWriter[parquetRow](&b)
	_, err := w.Write([]parquetRow{
		{Question: "2+2?", Answer: &answer, N: 1, Prompt: []parquetMessage{{"user", "hé"}}},
		{Question: "3+3?", N: 2, Prompt: []parquetMessage{{"system", "s"}, {"user", "u"}}},
	})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func TestEveryFormatGivesTheSameRows(t *testing.T) {
	lines := "{\"question\":\"2+2?\",\"answer\":\"4\"}\n\n{\"question\":\"3+3?\",\"answer\":\"6\"}\r\n"
	array := " \n[{\"question\":\"2+2?\",\"answer\":\"4\"},\n{\"question\":\"3+3?\",\"answer\":\"6\"}]\n"
	csv := "question,answer\n2+2?,4\n\"3+3?\",6\n"
	for name, content := range map[string]string{
		"a.jsonl": lines, "b.ndjson": "\xef\xbb\xbf" + lines, "c.json": array, "d.json": lines, "e.csv": csv, "f.tsv": strings.ReplaceAll(csv, ",", "\t"),
		"g.jsonl.gz": gzipped(t, lines), "h.json.zst": zstandard(t, array), "i.csv.gz": gzipped(t, csv),
	} {
		d, err := OpenDataset(file(t, name, content), DatasetOptions{})
		require.NoError(t, err, name)
		require.Equal(t, []string{"answer", "question"}, d.Columns(), name)
		require.Equal(t, 2, d.Len(), name)
		require.Equal(t, map[string]any{"question": "3+3?", "answer": "6"}, d.Rows[1].Columns(), name)
		require.Equal(t, 1, d.Rows[1].Index)
	}
}

func TestParquetRowsAreNested(t *testing.T) {
	for name, content := range map[string]string{"a.parquet": parquetFile(t), "b.parquet.zst": zstandard(t, parquetFile(t))} {
		d, err := OpenDataset(file(t, name, content), DatasetOptions{})
		require.NoError(t, err)
		require.Equal(t, 2, d.Len())
		require.Equal(t, map[string]any{"question": "2+2?", "answer": "4", "n": int64(1), "prompt": []any{map[string]any{"role": "user", "content": "hé"}}}, d.Rows[0].Columns())
		_, ok := d.Rows[1].Get("answer")
		require.False(t, ok, "null is absent")
		require.Len(t, d.Rows[1].Columns()["prompt"], 2)
	}
}

func TestLineNumbersOfBadInput(t *testing.T) {
	for name, c := range map[string]struct{ content, want string }{
		"a.jsonl":    {"{\"a\":1}\n\n{\"a\":}\n", "line 3"},
		"b.jsonl":    {"{\"a\":1}\n[1]\n", "line 2: a list of 1"},
		"c.json":     {"[{\"a\":1},\n{\"a\":2},\n{\"a\" 3}]", "line 3"},
		"d.json":     {"[{\"a\":1},\n\n7]", "line 3: a number"},
		"e.csv":      {"a,b\n1,2\n3\n", "line 3 has 1 fields, the header 2"},
		"f.csv":      {"a,a\n1,2\n", "\"a\" appears twice"},
		"g.jsonl":    {"", "has no rows"},
		"h.json":     {"[]", "has no rows"},
		"i.csv":      {"a,b\n", "has no rows"},
		"j.json":     {"[{\"a\":1}", "line 1"},
		"k.json":     {"[{\"a\":1}] 5", "behind the end"},
		"l.jsonl":    {"{\"a\":\"\xff\"}\n", "UTF-8"},
		"m.parquet":  {"PAR1 nonsense PAR1", "parquet"},
		"n.txt":      {"x", "tells no format"},
		"o.jsonl.gz": {"plain", "gzip"},
	} {
		_, err := OpenDataset(file(t, name, c.content), DatasetOptions{})
		require.ErrorContains(t, err, c.want, name)
	}
	_, err := OpenDataset(filepath.Join(t.TempDir(), "none.jsonl"), DatasetOptions{})
	require.ErrorContains(t, err, "does not exist")
}

func TestLineOfRowInJSONArray(t *testing.T) {
	d, err := OpenDataset(file(t, "a.json", "\n[\n{\"a\":1},\n\n{\n\"a\":2}]"), DatasetOptions{})
	require.NoError(t, err)
	require.Equal(t, "a.json:3", d.Rows[0].Where())
	require.Equal(t, "a.json:5", d.Rows[1].Where())
}

func TestLimitStopsReadingBeforeWhatIsBroken(t *testing.T) {
	path := file(t, "a.jsonl", "{\"a\":1}\n{\"a\":2}\nbroken\n")
	d, err := OpenDataset(path, DatasetOptions{Limit: 2})
	require.NoError(t, err)
	require.Equal(t, 2, d.Len())
	_, err = OpenDataset(path, DatasetOptions{Limit: 3})
	require.ErrorContains(t, err, "line 3")
}

func TestUnpackedSizeIsBounded(t *testing.T) {
	bomb := gzipped(t, strings.Repeat("{\"a\":\"xxxxxxxxxxxxxxxxxxxxxxxx\"}\n", 100_000))
	_, err := OpenDataset(file(t, "a.jsonl.gz", bomb), DatasetOptions{MaxBytes: 1 << 20})
	require.ErrorContains(t, err, "larger than the memory")
	_, err = OpenDataset(file(t, "a.parquet", parquetFile(t)), DatasetOptions{MaxBytes: 100})
	require.ErrorContains(t, err, "larger than the memory")
}

func TestFolderNeverTrainsOnTestFiles(t *testing.T) {
	dir := t.TempDir()
	for name, a := range map[string]string{"train-00001.jsonl": "2", "train-00000.jsonl": "1", "test.jsonl": "3", "data/dev.jsonl": "4", "README.md": "x", ".hidden.jsonl": "x"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(`{"a":"`+a+`"}`), 0o644))
	}
	read := func(split string) (out []string) {
		d, err := OpenDataset(dir, DatasetOptions{Split: split})
		require.NoError(t, err)
		for _, r := range d.Rows {
			s, err := r.Text("a")
			require.NoError(t, err)
			out = append(out, s)
		}
		return out
	}
	require.Equal(t, []string{"1", "2"}, read(""))
	require.Equal(t, []string{"3"}, read("test"))
	require.Equal(t, []string{"4"}, read("validation"))
	require.NoError(t, os.Remove(filepath.Join(dir, "test.jsonl")))
	_, err := OpenDataset(dir, DatasetOptions{Split: "test"})
	require.ErrorContains(t, err, "has no test files; its splits are train, validation")
}

func TestMissingColumnNamesTheNearest(t *testing.T) {
	d := NewDataset("mem", []map[string]any{{"question": "q", "answer": 1, "list": []any{"x"}}, {"question": "r"}})
	require.ErrorContains(t, d.Require("answr"), `no column "answr"; there are answer, list, question; did you mean "answer"?`)
	require.ErrorContains(t, d.Require("answer"), "mem:2")
	require.NoError(t, d.Require("question"))
	_, err := d.Rows[0].Text("list")
	require.ErrorContains(t, err, "is a list of 1, want text")
	s, err := d.Rows[0].Text("answer")
	require.NoError(t, err)
	require.Equal(t, "1", s)
	require.Equal(t, 2, spelling.Distance("answr", "answers"), "two insertions")
	_, ok := nearest("zebra", d.Columns())
	require.False(t, ok)
}

func TestSplitIsDisjointCompleteAndFixed(t *testing.T) {
	rows := make([]map[string]any, 50)
	for i := range rows {
		rows[i] = map[string]any{"n": i}
	}
	d := NewDataset("mem", rows)
	train, eval, err := d.Split(7, 3)
	require.NoError(t, err)
	require.Equal(t, 7, eval.Len())
	seen := map[int]bool{}
	for _, r := range append(train.Rows, eval.Rows...) {
		require.False(t, seen[r.Index])
		seen[r.Index] = true
	}
	require.Len(t, seen, 50)
	_, again, _ := d.Split(7, 3)
	require.Equal(t, eval.Rows, again.Rows)
	_, other, _ := d.Split(7, 4)
	require.NotEqual(t, eval.Rows, other.Rows)
	_, _, err = d.Split(50, 3)
	require.ErrorContains(t, err, "nothing to train on")
}

func TestFeedResumesAnywhere(t *testing.T) {
	items := []int{0, 1, 2, 3, 4, 5, 6}
	whole, err := NewFeed(items, 9, true)
	require.NoError(t, err)
	want, err := whole.Next(40)
	require.NoError(t, err)
	for epoch := range 5 {
		require.ElementsMatch(t, items, want[7*epoch:7*epoch+7], "an epoch has every item once")
	}
	require.NotEqual(t, want[:7], want[7:14])
	for cut := range 40 {
		a, _ := NewFeed(items, 9, true)
		if cut > 0 {
			_, err := a.Next(cut)
			require.NoError(t, err)
		}
		b, _ := NewFeed(items, 9, true)
		require.NoError(t, b.Seek(a.Cursor()))
		if cut < 40 {
			got, err := b.Next(40 - cut)
			require.NoError(t, err)
			require.Equal(t, want[cut:], got, fmt.Sprint("cut at ", cut))
		}
	}
	c, _ := NewFeed(items[:6], 9, true)
	require.ErrorContains(t, c.Seek(whole.Cursor()), "7 usable rows")
	c, _ = NewFeed(items, 8, true)
	require.ErrorContains(t, c.Seek(whole.Cursor()), "seed")
	plain, _ := NewFeed(items, 9, false)
	got, _ := plain.Next(9)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 0, 1}, got)
}

func FuzzDataset(f *testing.F) {
	f.Add("a.jsonl", []byte("{\"a\":1}\n"))
	f.Add("a.json", []byte("[{\"a\":[1,{\"b\":null}]}]"))
	f.Add("a.csv", []byte("a,b\n1,\"2\n3\"\n"))
	f.Add("a.parquet", []byte(parquetFile(f)))
	f.Add("a.jsonl.gz", []byte(gzipped(f, "{\"a\":1}\n")))
	f.Add("a.json.zst", []byte(zstandard(f, "[{}]")))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		if format, _ := formatOf(name); formats()[format] == nil || strings.ContainsAny(name, "/\\\x00") || len(name) > 40 || len(content) > 1<<16 {
			return
		}
		d, err := OpenDataset(file(t, name, string(content)), DatasetOptions{MaxBytes: 1 << 22, Limit: 1000})
		if err != nil {
			return
		}
		for _, r := range d.Rows {
			require.NotNil(t, r.Columns())
		}
	})
}
