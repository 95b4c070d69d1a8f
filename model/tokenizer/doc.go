// Package tokenizer turns text into token ids and back, exactly as Hugging Face tokenizers and llama.cpp do.
//
// A Tokenizer is a pipeline read from a tokenizer.json (FromJSON) or from the keys of a GGUF file (FromGGUF):
//
//	added tokens cut out → normalizer → added tokens again → pre-tokenizer → model → post-processor
//
// The models are byte-level BPE, BPE with byte fallback, SentencePiece BPE by score, Unigram and WordPiece. Decoding is
// a chain of streaming stages, so the text of a stream is the text of Decode by construction.
//
// The room knows no files, no tensors, no models and no chat templates. A Tokenizer owns its tables and never changes
// after it is built; the buffers of a call belong to that call. Ids are the truth and text is a view: nothing in this
// package re-tokenizes what it decoded.
package tokenizer
