package gguf

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
)

// maxShards is the largest count that the five digits of a shard's name can say.
const maxShards = 99999

// shardName matches the name of a shard: the prefix, its number from 1 on, and the count.
func shardName() *regexp.Regexp {
	return regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)
}

// shardPaths returns the paths of all shards of the model that path belongs
// to, in order, or path alone if its name is not that of a shard.
func shardPaths(path string) ([]string, error) {
	m := shardName().FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return []string{path}, nil
	}
	no, _ := strconv.Atoi(m[2]) // five digits
	count, _ := strconv.Atoi(m[3])
	if no < 1 || no > count {
		return nil, fmt.Errorf("gguf: %s: the name says shard %d of %d", path, no, count)
	}
	paths := make([]string, count)
	for i := range paths {
		paths[i] = filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, count))
	}
	return paths, nil
}

// checkSplit checks that f, opened as shard no (from 0 on) of count, says the
// same of itself.
func (f *File) checkSplit(no, count int) error {
	n, err := f.IntOr("split.count", count)
	if err != nil {
		return err
	}
	if n == 0 { // some writers say 0 of a model that is not split
		n = 1
	}
	if n > maxShards {
		return fmt.Errorf("split.count is %d, at most %d can be", n, maxShards)
	}
	if n != count {
		return fmt.Errorf("the file is one of %d shards, but %d by its name; shards are named NAME-00001-of-%05d.gguf", n, count, n)
	}
	k, err := f.IntOr("split.no", no)
	if err != nil {
		return err
	}
	if k != no {
		return fmt.Errorf("split.no is %d, but the name says shard %d (counted from 0)", k, no)
	}
	return nil
}
