package tokenizer

import "fmt"

// preRule is what a tokenizer.ggml.pre name stands for in llama.cpp.
type preRule struct {
	steps        sequencePre
	ignoreMerges bool
	addBOS       bool
}

// prePatterns lists the splits of a pre name, applied one after another, as llama.cpp does.
func prePatterns(name string) ([]string, bool) {
	switch name {
	case "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "roberta-bpe", "gigachat", "a.x-4.0", "mellum", "modern-bert":
		return []string{gpt2Pattern}, true
	case "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "smaug-bpe", "dbrx", "glm4", "chatglm-bpe":
		return []string{llama3Pattern}, true
	case "qwen2", "deepseek-r1-qwen", "stablelm2", "kormo", "hunyuan", "megrez":
		return []string{qwen2Pattern}, true
	case "qwen35":
		return []string{qwen35Pattern}, true
	case "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b":
		return []string{digitPattern, gpt2Pattern}, true
	case "deepseek-v3", "hunyuan-dense":
		return []string{digits3Pattern, kanaPattern, deepseekPattern}, true
	case "deepseek-coder":
		return []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥ࠀ-一가-퟿]+`, digitPattern}, true
	case "falcon":
		return []string{falconPattern, gpt2Pattern, ascii3Pattern}, true
	case "tekken":
		return []string{tekkenPattern}, true
	case "gpt-4o", "llama4", "kanana2":
		return []string{gpt4oPattern}, true
	case "", "default":
		return []string{defaultPattern, gpt2Pattern, digitsPattern, ascii3Pattern}, true
	}
	return nil, false
}

// ggufPre returns the rule of a pre name. A file without one gets llama.cpp's default rule.
func ggufPre(name string) (preRule, error) {
	patterns, ok := prePatterns(name)
	if !ok {
		return preRule{}, fmt.Errorf("tokenizer: tokenizer.ggml.pre %q is not supported", name)
	}
	rule := preRule{}
	for _, p := range patterns {
		find, err := compilePattern(p)
		if err != nil {
			return preRule{}, err
		}
		rule.steps = append(rule.steps, splitter{find: find, behavior: isolated})
	}
	switch name {
	case "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2":
		rule.ignoreMerges, rule.addBOS = true, true
	case "tekken":
		rule.ignoreMerges, rule.addBOS = true, true
	}
	return rule, nil
}
