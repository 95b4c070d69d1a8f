package rewards

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// goldNames are the columns looked for when a reward names none, in this order.
func goldNames() []string {
	return []string{"answer", "solution", "ground_truth", "final_answer", "target"}
}

// goldColumn is where a reward finds the gold answer of a sample.
type goldColumn struct {
	reward string
	column string // "": the first of goldNames that the row has
}

func (g goldColumn) names() []string {
	if g.column == "" {
		return goldNames()
	}
	return []string{g.column}
}

// of is the gold answer as text.
func (g goldColumn) of(s *Sample) (string, error) {
	for _, name := range g.names() {
		value, ok := s.Columns[name]
		if !ok {
			continue
		}
		text, ok := plainText(value)
		if !ok {
			return "", &Error{Reward: g.reward, Kind: KindColumn, Sample: s,
				Detail: fmt.Sprintf("column %q is a %T, not text or a number", name, value),
				Remedy: "name a column of text after the colon"}
		}
		return text, nil
	}
	var have []string
	for name := range s.Columns {
		have = append(have, name)
	}
	sort.Strings(have)
	detail := fmt.Sprintf("no column %s; the row has: %s", strings.Join(g.names(), ", "), strings.Join(have, ", "))
	if len(have) == 0 {
		detail = fmt.Sprintf("no column %s; the row has no columns but the prompt", strings.Join(g.names(), ", "))
	}
	return "", &Error{Reward: g.reward, Kind: KindColumn, Sample: s, Detail: detail,
		Remedy: "name the column of the gold answer after the colon, for example " + strings.SplitN(g.reward, ":", 2)[0] + ":NAME"}
}

// present tells whether the row has a gold answer.
func (g goldColumn) present(s *Sample) error {
	_, err := g.of(s)
	return err
}

// filled tells whether the row has one that is not blank.
func (g goldColumn) filled(s *Sample) error {
	text, err := g.of(s)
	if err == nil && strings.TrimSpace(text) == "" {
		err = g.blank(s)
	}
	return err
}

func (g goldColumn) blank(s *Sample) error {
	return &Error{Reward: g.reward, Kind: KindColumn, Sample: s,
		Detail: "the gold answer is empty", Remedy: "remove the row or name another column after the colon"}
}

// plainText is the text of a scalar column.
func plainText(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	case json.Number:
		return v.String(), true
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, bool:
		return fmt.Sprint(v), true
	case float32:
		return strconv.FormatFloat(float64(v), 'f', -1, 32), !math.IsNaN(float64(v))
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), !math.IsNaN(v)
	}
	return "", false
}
