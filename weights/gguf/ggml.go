package gguf

import "fmt"

// typeName names a ggml type id, also of types that cannot be read, for errors.
func typeName(id uint32) string {
	names := map[uint32]string{
		0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
		10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
		16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
		24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
		34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
		// Once given, since taken back.
		4: "Q4_2 (removed from ggml)", 5: "Q4_3 (removed from ggml)",
		31: "Q4_0_4_4 (removed from ggml)", 32: "Q4_0_4_8 (removed from ggml)", 33: "Q4_0_8_8 (removed from ggml)",
		36: "IQ4_NL_4_4 (removed from ggml)", 37: "IQ4_NL_4_8 (removed from ggml)", 38: "IQ4_NL_8_8 (removed from ggml)",
	}
	name, ok := names[id]
	if !ok {
		name = "unknown"
	}
	return fmt.Sprintf("%s (%d)", name, id)
}
