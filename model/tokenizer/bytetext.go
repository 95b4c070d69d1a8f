package tokenizer

import "unicode/utf8"

// Byte-level vocabularies write a byte as a printable character: 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for
// themselves, the other 68 bytes in ascending order for U+0100 and on (space is Ġ, newline Ċ).

// byteRune returns the character that stands for b.
func byteRune(b byte) rune {
	switch {
	case b <= 0x20:
		return 0x100 + rune(b)
	case b < 0x7F:
		return rune(b)
	case b <= 0xA0:
		return 0x100 + 0x21 + rune(b-0x7F)
	case b == 0xAD:
		return 0x100 + 0x43
	}
	return rune(b)
}

// runeByte is the inverse of byteRune.
func runeByte(r rune) (byte, bool) {
	switch {
	case 0x21 <= r && r <= 0x7E, 0xA1 <= r && r <= 0xAC, 0xAE <= r && r <= 0xFF:
		return byte(r), true
	case r < 0x100, r > 0x143:
		return 0, false
	case r <= 0x120:
		return byte(r - 0x100), true
	case r < 0x143:
		return byte(r-0x121) + 0x7F, true
	}
	return 0xAD, true
}

// appendByteText appends s with every byte written as its character.
func appendByteText(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		dst = utf8.AppendRune(dst, byteRune(s[i]))
	}
	return dst
}

func byteText(s string) string { return string(appendByteText(make([]byte, 0, len(s)+len(s)/2), s)) }

// appendTextBytes appends the bytes that a piece stands for; a piece with any other character stands for itself.
func appendTextBytes(dst []byte, piece string) []byte {
	base := len(dst)
	for _, r := range piece {
		b, ok := runeByte(r)
		if !ok {
			return append(dst[:base], piece...)
		}
		dst = append(dst, b)
	}
	return dst
}
