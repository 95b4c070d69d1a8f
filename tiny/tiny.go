package tiny

import (
	"bytes"
	_ "embed"

	"graft/weights/gguf"
)

//go:embed tiny.gguf
var file []byte

// Model is the embedded model: a GGUF file of about a megabyte.
func Model() []byte { return file }

// Open parses the embedded model.
func Open() (*gguf.File, error) { return gguf.Parse(bytes.NewReader(file), int64(len(file))) }
