package safetensors

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxIndex bounds the bytes of an index, as the format bounds a header.
const maxIndex = maxHeader

// openIndex opens the shards that the index at path names and puts them together.
func openIndex(path string) (*File, error) {
	weights, err := readIndex(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	var names []string
	for _, name := range weights {
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	all := &File{Metadata: map[string]string{}, index: map[string]int{}}
	shardOf := map[string]string{} // tensor to file
	for i, name := range names {
		shard, err := openOne(filepath.Join(filepath.Dir(path), name))
		if err == nil {
			err = all.add(shard)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("safetensors: %s: %w", filepath.Join(filepath.Dir(path), name), err), all.Close())
		}
		for _, t := range shard.Tensors {
			shardOf[t.Name] = name
		}
		if i == 0 {
			all.Metadata = shard.Metadata
		}
	}
	for tensor, name := range weights {
		if shardOf[tensor] != name {
			return nil, errors.Join(fmt.Errorf("safetensors: %s: tensor %q is not in %s", path, tensor, name), all.Close())
		}
	}
	return all, nil
}

// add appends the tensors and the source of a shard, which f owns from then on.
func (f *File) add(shard *File) error {
	f.sources = append(f.sources, shard.sources...)
	for _, t := range shard.Tensors {
		if _, ok := f.index[t.Name]; ok {
			return fmt.Errorf("tensor %q is in two shards", t.Name)
		}
		t.shard = len(f.sources) - 1
		f.index[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
	return nil
}

// readIndex reads the weight_map of an index: tensor name to file name.
func readIndex(path string) (map[string]string, error) {
	r, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > maxIndex {
		return nil, fmt.Errorf("an index of %d bytes, at most %d allowed", size, maxIndex)
	}
	src := make([]byte, size)
	if _, err := io.ReadFull(r, src); err != nil {
		return nil, err
	}
	return parseIndex(src)
}

// parseIndex returns the weight_map of the JSON of an index. Every file name in
// it is a plain name: an index must not reach outside its folder.
func parseIndex(src []byte) (map[string]string, error) {
	if !utf8.Valid(src) {
		return nil, fmt.Errorf("not UTF-8")
	}
	var weights map[string]string
	p := newParser(src)
	err := p.object(func(key string) error {
		if key != "weight_map" {
			return p.skip()
		}
		if weights != nil {
			return fmt.Errorf("appears twice")
		}
		weights = map[string]string{}
		return p.stringMap(weights)
	})
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, err
	}
	if len(weights) == 0 {
		return nil, fmt.Errorf("no weight_map")
	}
	for tensor, name := range weights {
		if !filepath.IsLocal(name) || strings.ContainsAny(name, `/\:`) || !strings.HasSuffix(name, ".safetensors") {
			return nil, fmt.Errorf("tensor %q is said to be in %q, which is not the name of a safetensors file in the same folder", tensor, name)
		}
	}
	return weights, nil
}
