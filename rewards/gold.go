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

// goldColumn reads the gold answer of a sample as text from column, or from the first of
// goldNames that the row has.
func goldColumn(reward, column string) func(s *Sample) (string, error) {
	return func(s *Sample) (string, error) {
		names := []string{column}
		if column == "" {
			names = goldNames()
		}
		for _, name := range names {
			value, ok := s.Columns[name]
			if !ok {
				continue
			}
			text, ok := plainText(value)
			if !ok {
				return "", &Error{Reward: reward, Kind: KindColumn, Sample: s,
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
		detail := fmt.Sprintf("no column %s; the row has: %s", strings.Join(names, ", "), strings.Join(have, ", "))
		if len(have) == 0 {
			detail = fmt.Sprintf("no column %s; the row has no columns but the prompt", strings.Join(names, ", "))
		}
		return "", &Error{Reward: reward, Kind: KindColumn, Sample: s, Detail: detail,
			Remedy: "name the column of the gold answer after the colon, for example " + strings.SplitN(reward, ":", 2)[0] + ":NAME"}
	}
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
