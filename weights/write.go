package weights

import (
	"fmt"
	"io"

	"graft/weights/durable"
)

// WriteFile replaces a file as a whole: see durable.WriteFile.
func WriteFile(path string, data []byte) error {
	err := durable.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("weights: %s: %w", path, err)
	}
	return nil
}
