package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServesUnderTheAdaptersContract(t *testing.T) {
	root := t.TempDir()
	one, other := filepath.Join(root, "one"), filepath.Join(root, "other")
	adapterUnder(t, one, "int8")
	adapterUnder(t, other, "f32")
	p := start(t, "--model", "tiny", "--adapter", one)
	_, cards := p.get(t, "/v1/models", "")
	require.Contains(t, cards, `"precision":"int8"`)
	require.NotContains(t, cards, `"precision":"f32"`)
	_, own := p.complete(t, "one")
	_, base := p.complete(t, "tiny")
	require.Contains(t, p.errs.String(), "precision int8)\n")
	require.NotContains(t, p.errs.String(), "warning")
	p.stop(t)

	var out, errs bytes.Buffer
	require.Equal(t, exitUsage, run([]string{"--port", "0", "--model", "tiny", "--adapter", one, "--adapter", other}, &out, &errs, make(chan os.Signal)))
	require.Contains(t, errs.String(), other+" under f32, "+one+" under int8")
	require.Contains(t, errs.String(), "--precision f32 or int8")

	p = start(t, "--model", "tiny", "--adapter", one, "--adapter", other, "--precision", "f32")
	defer p.stop(t)
	require.Contains(t, p.errs.String(), "warning: "+one+" was trained under precision int8 and computes under f32 here")
	require.NotContains(t, p.errs.String(), other+" was")
	_, cards = p.get(t, "/v1/models", "")
	require.NotContains(t, cards, `"precision":"int8"`)
	_, against := p.complete(t, "one")
	require.NotEqual(t, own, against)
	_, plain := p.complete(t, "tiny")
	require.NotEqual(t, base, plain, "the contract is the base's too")
}
