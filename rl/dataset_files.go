package rl

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"graft/model/template"
)

// DatasetOptions say what of a dataset is read.
type DatasetOptions struct {
	Limit int // rows, the first ones; 0: all. Reading stops there.
	// Split picks files of a folder by their names: "train" (also files that name no split), "test",
	// "validation". Empty means train, so that a folder with test files never trains on them.
	Split string
	// MaxBytes bounds the text that is kept, after decompression; 0 means 4 GiB.
	MaxBytes int64
}

const (
	defaultMaxBytes = 4 << 30
	maxRecord       = 64 << 20 // one line or parquet batch
	maxFiles        = 100_000
)

// errEnough stops a reader that has all rows it was asked for.
var errEnough = errors.New("enough rows")

// emitter takes a row of a file; line counts from 1.
type emitter func(line int, fields *template.Map) error

// OpenDataset reads a file, or every file of a folder in order of their names: JSON lines (.jsonl,
// .ndjson), a JSON array or objects (.json), .csv, .tsv, .parquet; text formats also as .gz or .zst.
func OpenDataset(path string, o DatasetOptions) (*Dataset, error) {
	if o.Limit < 0 {
		return nil, fmt.Errorf("rl: dataset limit %d is negative; 0 means all rows", o.Limit)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	files, err := datasetFiles(path, o.Split)
	if err != nil {
		return nil, err
	}
	d := &Dataset{Name: path}
	left := o.MaxBytes
	for _, file := range files {
		short := filepath.Base(file)
		d.Files = append(d.Files, file)
		err := readFile(file, &left, func(line int, fields *template.Map) error {
			d.Rows = append(d.Rows, Row{Index: len(d.Rows), file: short, line: line, fields: fields})
			if o.Limit > 0 && len(d.Rows) == o.Limit {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return d, nil
		}
		if err != nil {
			return nil, fmt.Errorf("rl: dataset %s: %w", file, err)
		}
	}
	if len(d.Rows) == 0 {
		return nil, fmt.Errorf("rl: dataset %s has no rows", path)
	}
	return d, nil
}

// formats maps file name endings to readers.
func formats() map[string]func(*source, emitter) error {
	return map[string]func(*source, emitter) error{
		".jsonl": readLines, ".ndjson": readLines, ".json": readJSON, ".csv": readComma, ".tsv": readTab, ".parquet": readParquet,
	}
}

// formatOf returns the reader's ending and the compression's.
func formatOf(path string) (format, packed string) {
	ext := strings.ToLower(filepath.Ext(path))
	if ext == ".gz" || ext == ".zst" {
		return strings.ToLower(filepath.Ext(path[:len(path)-len(ext)])), ext
	}
	return ext, ""
}

const formatList = ".jsonl, .json, .csv, .tsv, .parquet, each also with .gz or .zst"

// splitName finds a split in a file's name: train-00000-of-00002.parquet, gsm8k_test.jsonl.
func splitName(name string) string {
	m := regexp.MustCompile(`(?:^|[-_./])(train|test|validation|valid|val|dev|eval)(?:[-_./]|$)`).FindStringSubmatch(strings.ToLower(name))
	if m == nil {
		return "train"
	}
	if m[1] == "train" || m[1] == "test" {
		return m[1]
	}
	return "validation"
}

func datasetFiles(path, split string) ([]string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rl: dataset %s does not exist; give a file or a folder of files (%s)", path, formatList)
	}
	if err != nil {
		return nil, fmt.Errorf("rl: dataset: %w", err)
	}
	if !info.IsDir() {
		if format, _ := formatOf(path); formats()[format] == nil {
			return nil, fmt.Errorf("rl: dataset %s: the ending tells no format; want %s", path, formatList)
		}
		return []string{path}, nil
	}
	if split == "" {
		split = "train"
	}
	var files, splits []string
	err = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") && p != path {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		format, _ := formatOf(p)
		if e.IsDir() || formats()[format] == nil {
			return nil
		}
		rel, _ := filepath.Rel(path, p)
		s := splitName(filepath.ToSlash(rel))
		if !slices.Contains(splits, s) {
			splits = append(splits, s)
		}
		if s == split {
			files = append(files, p)
		}
		if len(files) > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("rl: dataset %s: %w", path, err)
	case len(splits) == 0:
		return nil, fmt.Errorf("rl: dataset folder %s holds no file of a known format (%s)", path, formatList)
	case len(files) == 0:
		sort.Strings(splits)
		return nil, fmt.Errorf("rl: dataset folder %s has no %s files; its splits are %s", path, split, strings.Join(splits, ", "))
	}
	sort.Strings(files)
	return files, nil
}

// source is one file being read; left counts down what may still be read of all files.
type source struct {
	io.Reader
	file   *os.File // the file itself when it is not compressed; parquet seeks in it
	left   *int64
	failed error // what ended reading, other than the end of the file
}

// Read fails when more than the permitted text was read, be it from a small file that unpacks to a
// huge one.
func (s *source) Read(b []byte) (int, error) {
	if *s.left <= 0 {
		s.failed = errors.New("the dataset is larger than the memory it may take; give a limit of rows, or fewer files")
		return 0, s.failed
	}
	n, err := s.Reader.Read(b[:min(int64(len(b)), *s.left)])
	*s.left -= int64(n)
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}

func readFile(path string, left *int64, emit emitter) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	format, packed := formatOf(path)
	src := &source{Reader: f, file: f, left: left}
	switch packed {
	case ".gz":
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return fmt.Errorf("gzip: %w", err)
		}
		defer z.Close()
		src.Reader, src.file = z, nil
	case ".zst":
		z, err := zstd.NewReader(f, zstd.WithDecoderMaxWindow(1<<30), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
		defer z.Close()
		src.Reader, src.file = z, nil
	}
	return formats()[format](src, emit)
}

// text returns a buffered reader behind a byte order mark, if there is one.
func text(r io.Reader) *bufio.Reader {
	b := bufio.NewReaderSize(r, 1<<16)
	if head, err := b.Peek(3); err == nil && bytes.Equal(head, []byte("\xef\xbb\xbf")) {
		b.Discard(3)
	}
	return b
}
