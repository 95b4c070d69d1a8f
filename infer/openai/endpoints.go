package openai

import (
	"fmt"
	"net/url"
	"path/filepath"
	"runtime/debug"
)

// health answers GET /health. A server that listens has loaded its model.
func (s *Server) health(c *call) {
	if s.base.Err() != nil {
		c.fail(shuttingDown())
		return
	}
	c.http.SetStatusCode(200)
}

// version answers GET /version.
func (s *Server) version(c *call) {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	c.send(200, map[string]string{"version": version})
}

// listModels answers GET /v1/models.
func (s *Server) listModels(c *call) {
	c.send(200, struct {
		Object string `json:"object"`
		Data   []card `json:"data"`
	}{"list", s.models.cards()})
}

// getModel answers GET /v1/models/{model}.
func (s *Server) getModel(c *call, name string) {
	c.path = "/v1/models/{model}"
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	for _, card := range s.models.cards() {
		if card.ID == name {
			c.send(200, card)
			return
		}
	}
	c.fail(unknownModel(name))
}

// tokenize answers POST /tokenize for a prompt or for messages, in vLLM's shape.
func (s *Server) tokenize(c *call) {
	var ids []int32
	pieces := false
	fault := s.read(c, func(b *body) {
		s.knownModel(b)
		pieces = b.flag("return_token_strs", false)
		if _, chat := b.value("messages"); chat {
			ids = s.readConversation(b).ids
		} else {
			ids = s.tokenizePrompt(b)
		}
	})
	if fault != nil {
		c.fail(fault)
		return
	}
	out := struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []int32  `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}{Count: len(ids), MaxModelLen: s.engine.Options().MaxModelLen, Tokens: append([]int32{}, ids...)}
	if pieces {
		out.TokenStrs = make([]string, len(ids))
		for i, id := range ids {
			out.TokenStrs[i], _ = s.tok.Token(id)
		}
	}
	c.send(200, out)
}

func (s *Server) tokenizePrompt(b *body) []int32 {
	special := b.flag("add_special_tokens", true)
	v, ok := b.value("prompt")
	text, isText := v.(string)
	switch {
	case !ok:
		b.fail("prompt", "give prompt or messages")
		return nil
	case !isText:
		b.wrongType("prompt", v, "a string")
		return nil
	}
	ids, err := s.encode(text, special)
	if err != nil {
		b.fail("prompt", "%v", err)
	}
	return ids
}

// knownModel checks the model field of a request that computes nothing.
func (s *Server) knownModel(b *body) {
	name := b.text("model", "")
	if b.fault != nil {
		return
	}
	if e, fault := s.models.use(name); !b.keep(fault) {
		s.models.drop(e)
	}
}

// detokenize answers POST /detokenize.
func (s *Server) detokenize(c *call) {
	var ids []int32
	fault := s.read(c, func(b *body) {
		s.knownModel(b)
		const most = 1 << 20
		ids = b.ids("tokens", most, s.vocab)
		if _, ok := b.value("tokens"); !ok {
			b.fail("tokens", "tokens is missing")
		}
	})
	if fault != nil {
		c.fail(fault)
		return
	}
	c.send(200, map[string]string{"prompt": s.tok.Decode(ids, false)})
}

// tokenizerInfo answers GET /tokenizer_info.
func (s *Server) tokenizerInfo(c *call) {
	piece := func(id int32, ok bool) *string {
		if !ok {
			return nil
		}
		text, _ := s.tok.Token(id)
		return &text
	}
	c.send(200, struct {
		Class       string  `json:"tokenizer_class"`
		Template    *string `json:"chat_template"`
		BOS         *string `json:"bos_token"`
		EOS         *string `json:"eos_token"`
		PAD         *string `json:"pad_token"`
		UNK         *string `json:"unk_token"`
		Stops       []int32 `json:"stop_token_ids"`
		VocabSize   int     `json:"vocab_size"`
		MaxModelLen int     `json:"model_max_length"`
	}{"graft.Tokenizer", orNull(s.source), piece(s.tok.BOS()), piece(s.tok.EOS()), piece(s.tok.PAD()), piece(s.tok.UNK()),
		s.tok.StopIDs(), s.tok.VocabSize(), s.engine.Options().MaxModelLen})
}

// loadAdapter answers POST /v1/load_lora_adapter.
func (s *Server) loadAdapter(c *call) {
	var name, path string
	var inPlace bool
	fault := s.read(c, func(b *body) {
		name, path = b.text("lora_name", ""), b.text("lora_path", "")
		inPlace = b.flag("load_inplace", false)
		b.refuse("is_3d_lora_weight", "it is for mixtures of experts", false)
		if name == "" || path == "" {
			b.fail("lora_name", "lora_name and lora_path are both needed")
		}
	})
	if fault != nil {
		c.fail(fault)
		return
	}
	ctx, release := s.watch(c)
	defer release()
	if fault := s.models.load(ctx, name, filepath.Clean(path), inPlace); fault != nil {
		c.fail(fault)
		return
	}
	c.text(fmt.Sprintf("Success: LoRA adapter '%s' added successfully.", name))
}

// unloadAdapter answers POST /v1/unload_lora_adapter.
func (s *Server) unloadAdapter(c *call) {
	name := ""
	fault := s.read(c, func(b *body) {
		name = b.text("lora_name", "")
		b.ignore("lora_int_id")
		if name == "" {
			b.fail("lora_name", "lora_name is missing")
		}
	})
	if fault != nil {
		c.fail(fault)
		return
	}
	if fault := s.models.unload(name); fault != nil {
		c.fail(fault)
		return
	}
	c.text(fmt.Sprintf("Success: LoRA adapter '%s' removed successfully.", name))
}

// text answers with plain text.
func (c *call) text(text string) {
	c.http.SetStatusCode(200)
	c.http.SetContentType("text/plain; charset=utf-8")
	c.http.SetBodyString(text)
}
