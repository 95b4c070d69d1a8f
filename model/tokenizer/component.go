package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"golang.org/x/text/unicode/norm"
)

// component is one entry of a tokenizer.json pipeline: the fields of all kinds together.
type component struct {
	Type string `json:"type"`

	Normalizers   []component `json:"normalizers"`
	Pretokenizers []component `json:"pretokenizers"`
	Processors    []component `json:"processors"`
	Decoders      []component `json:"decoders"`

	Pattern        *patternSpec    `json:"pattern"`
	Content        string          `json:"content"`
	Prepend        string          `json:"prepend"`
	Charsmap       string          `json:"precompiled_charsmap"`
	StripLeft      bool            `json:"strip_left"`
	StripRight     bool            `json:"strip_right"`
	CleanText      *bool           `json:"clean_text"`
	HandleChinese  *bool           `json:"handle_chinese_chars"`
	StripAccents   *bool           `json:"strip_accents"`
	Lowercase      *bool           `json:"lowercase"`
	Behavior       behavior        `json:"behavior"`
	Invert         bool            `json:"invert"`
	AddPrefixSpace *bool           `json:"add_prefix_space"`
	UseRegex       *bool           `json:"use_regex"`
	Individual     bool            `json:"individual_digits"`
	Replacement    string          `json:"replacement"`
	PrependScheme  string          `json:"prepend_scheme"`
	Split          *bool           `json:"split"`
	Start          int             `json:"start"`
	Stop           int             `json:"stop"`
	Prefix         *string         `json:"prefix"`
	Suffix         *string         `json:"suffix"`
	Cleanup        *bool           `json:"cleanup"`
	Single         []templateToken `json:"single"`
	SpecialTokens  map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
	CLS json.RawMessage `json:"cls"`
	SEP json.RawMessage `json:"sep"`
}

type patternSpec struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

type templateToken struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

func isSet(p *bool, otherwise bool) bool {
	if p == nil {
		return otherwise
	}
	return *p
}

// parseComponent reads a component; null is nil.
func parseComponent(raw json.RawMessage, part string) (*component, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var c component
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", part, err)
	}
	return &c, nil
}

func (p *patternSpec) finder() (finder, error) {
	switch {
	case p == nil:
		return nil, fmt.Errorf("tokenizer: pattern is missing")
	case p.String != nil:
		return literal(*p.String), nil
	case p.Regex != nil:
		return compilePattern(*p.Regex)
	}
	return nil, fmt.Errorf("tokenizer: pattern is neither String nor Regex")
}

func buildNormalizer(c *component) (normalizer, error) {
	switch c.Type {
	case "Sequence":
		var seq sequenceNormalizer
		for i := range c.Normalizers {
			n, err := buildNormalizer(&c.Normalizers[i])
			if err != nil {
				return nil, err
			}
			seq = append(seq, n)
		}
		return seq, nil
	case "NFC":
		return unicodeForm(norm.NFC), nil
	case "NFD":
		return unicodeForm(norm.NFD), nil
	case "NFKC":
		return unicodeForm(norm.NFKC), nil
	case "NFKD":
		return unicodeForm(norm.NFKD), nil
	case "Lowercase":
		return textFunc(lowercase), nil
	case "Strip":
		return stripSpace(c.StripLeft, c.StripRight), nil
	case "StripAccents":
		return stripMarks(isMark), nil
	case "Prepend":
		return prepend(c.Prepend), nil
	case "Replace":
		find, err := c.Pattern.finder()
		return replacer{find, c.Content}, err
	case "Precompiled":
		blob, err := base64.StdEncoding.DecodeString(c.Charsmap)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: precompiled charsmap: %w", err)
		}
		return newCharsmap(blob, false)
	case "BertNormalizer":
		lower := isSet(c.Lowercase, true)
		return bertNormalizer{
			clean: isSet(c.CleanText, true), han: isSet(c.HandleChinese, true),
			accents: isSet(c.StripAccents, lower), lower: lower,
		}, nil
	}
	return nil, fmt.Errorf("tokenizer: normalizer %q is not supported", c.Type)
}

func buildPreTokenizer(c *component) (preTokenizer, error) {
	switch c.Type {
	case "Sequence":
		var seq sequencePre
		for i := range c.Pretokenizers {
			p, err := buildPreTokenizer(&c.Pretokenizers[i])
			if err != nil {
				return nil, err
			}
			seq = append(seq, p)
		}
		return seq, nil
	case "ByteLevel":
		return byteLevel{prefixSpace: isSet(c.AddPrefixSpace, true), regex: isSet(c.UseRegex, true)}, nil
	case "Digits":
		if c.Individual {
			return splitter{find: class(isDigit), behavior: isolated}, nil
		}
		return splitter{find: class(isDigit), behavior: contiguous}, nil
	case "Metaspace":
		scheme := c.PrependScheme
		if scheme == "" {
			scheme = "always"
			if !isSet(c.AddPrefixSpace, true) {
				scheme = "never"
			}
		}
		return metaspace{c.Replacement, scheme, isSet(c.Split, true)}, nil
	case "Split":
		find, err := c.Pattern.finder()
		if err != nil {
			return nil, err
		}
		switch c.Behavior {
		case removed, isolated, mergedWithPrevious, mergedWithNext, contiguous:
			return splitter{find, c.Behavior, c.Invert}, nil
		}
		return nil, fmt.Errorf("tokenizer: split behavior %q is not supported", c.Behavior)
	case "Punctuation":
		if c.Behavior == "" {
			c.Behavior = isolated
		}
		return splitter{find: class(isBertPunct), behavior: c.Behavior}, nil
	case "Whitespace":
		return splitter{find: scanner(scanWord), behavior: removed, invert: true}, nil
	case "WhitespaceSplit":
		return splitter{find: class(isSpace), behavior: removed}, nil
	case "BertPreTokenizer":
		return sequencePre{
			splitter{find: class(isSpace), behavior: removed},
			splitter{find: class(isBertPunct), behavior: isolated},
		}, nil
	}
	return nil, fmt.Errorf("tokenizer: pre-tokenizer %q is not supported", c.Type)
}

// buildDecoder appends the stages of c; fused says whether the tokens are one text by then.
func buildDecoder(d decoder, c *component, fused bool) (decoder, bool, error) {
	perToken := func(f func(int, string) string) (decoder, bool, error) {
		if fused {
			return append(d, func() stage { return &whole{f: f} }), true, nil
		}
		return append(d, eachToken(f)), false, nil
	}
	switch c.Type {
	case "Sequence":
		var err error
		for i := range c.Decoders {
			if d, fused, err = buildDecoder(d, &c.Decoders[i], fused); err != nil {
				return nil, fused, err
			}
		}
		return d, fused, nil
	case "ByteLevel":
		return append(d, func() stage { return &byteLevelStage{} }), true, nil
	case "ByteFallback":
		if fused { // one text is no byte token
			return d, true, nil
		}
		return append(d, func() stage { return &byteFallbackStage{} }), false, nil
	case "Fuse":
		return d, true, nil
	case "Replace":
		find, err := c.Pattern.finder()
		if err != nil {
			return nil, fused, err
		}
		r := replacer{find, c.Content}
		if l, ok := find.(literal); ok && fused && oneRune(string(l)) {
			return append(d, eachToken(func(_ int, s string) string { s, _ = r.normalize(s); return s })), true, nil
		}
		return perToken(func(_ int, s string) string {
			text, err := r.normalize(s)
			if err != nil {
				return s // the pattern ran out of time on hostile text
			}
			return text
		})
	case "Strip":
		if fused {
			return append(d, func() stage { return &fusedStrip{char: c.Content, start: c.Start, stop: c.Stop} }), true, nil
		}
		return perToken(stripToken(c.Content, c.Start, c.Stop))
	case "Metaspace":
		prepended := c.PrependScheme != "never" && isSet(c.AddPrefixSpace, true)
		return perToken(metaspaceDecode(c.Replacement, prepended))
	case "WordPiece":
		prefix := "##"
		if c.Prefix != nil {
			prefix = *c.Prefix
		}
		return perToken(wordPieceDecode(cutPrefix(prefix), isSet(c.Cleanup, true)))
	case "BPEDecoder":
		suffix := "</w>"
		if c.Suffix != nil {
			suffix = *c.Suffix
		}
		return append(d, func() stage { return &suffixStage{suffix: suffix} }), false, nil
	}
	return nil, fused, fmt.Errorf("tokenizer: decoder %q is not supported", c.Type)
}
