package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"

	"graft/infer"
)

// usage counts the tokens of an answer.
type usage struct {
	Prompt     int          `json:"prompt_tokens"`
	Completion int          `json:"completion_tokens"`
	Total      int          `json:"total_tokens"`
	Details    usageDetails `json:"prompt_tokens_details"`
}

type usageDetails struct {
	Cached int `json:"cached_tokens"`
}

// usageField is usage in a chunk: absent, null or a value.
type usageField struct{ *usage }

func (u usageField) MarshalJSON() ([]byte, error) { return json.Marshal(u.usage) }

// completion is the answer, or a chunk of it, of /v1/completions.
type completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usageField        `json:"usage,omitempty"`
}

type completionChoice struct {
	Index          int                 `json:"index"`
	Text           string              `json:"text"`
	LogProbs       *completionLogProbs `json:"logprobs"`
	FinishReason   *string             `json:"finish_reason"`
	StopReason     any                 `json:"stop_reason"`
	PromptTokenIDs []int32             `json:"prompt_token_ids,omitempty"`
	TokenIDs       []int32             `json:"token_ids,omitempty"`
}

// chatCompletion is the answer of /v1/chat/completions.
type chatCompletion struct {
	ID             string       `json:"id"`
	Object         string       `json:"object"`
	Created        int64        `json:"created"`
	Model          string       `json:"model"`
	Choices        []chatChoice `json:"choices"`
	Usage          *usage       `json:"usage"`
	PromptTokenIDs []int32      `json:"prompt_token_ids,omitempty"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      chatMessage   `json:"message"`
	LogProbs     *chatLogProbs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	StopReason   any           `json:"stop_reason"`
	TokenIDs     []int32       `json:"token_ids,omitempty"`
}

type chatMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"` // null beside calls if there is no text
	Refusal   *string    `json:"refusal"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// chatChunk is one event of a chat stream.
type chatChunk struct {
	ID             string        `json:"id"`
	Object         string        `json:"object"`
	Created        int64         `json:"created"`
	Model          string        `json:"model"`
	Choices        []chunkChoice `json:"choices"`
	Usage          *usageField   `json:"usage,omitempty"`
	PromptTokenIDs []int32       `json:"prompt_token_ids,omitempty"`
}

type chunkChoice struct {
	Index        int           `json:"index"`
	Delta        chatDelta     `json:"delta"`
	LogProbs     *chatLogProbs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	StopReason   any           `json:"stop_reason,omitempty"`
	TokenIDs     []int32       `json:"token_ids,omitempty"`
}

type chatDelta struct {
	Role      string      `json:"role,omitempty"`
	Content   *string     `json:"content,omitempty"`
	ToolCalls []callDelta `json:"tool_calls,omitempty"`
}

// finishReason is a reason in the API's words; an aborted or failed choice never gets as far.
func finishReason(why infer.FinishReason) *string {
	if why == "" {
		return nil
	}
	text := string(why)
	return &text
}

// stopReason is what stopped a choice, as vLLM tells it: the stop string, or null.
func stopReason(ev *infer.Event) any {
	if ev.Stopped != "" {
		return ev.Stopped
	}
	return nil
}

// newID is 128 random bits.
func newID() string {
	var buf [16]byte
	rand.Read(buf[:])
	return hex.EncodeToString(buf[:])
}

// encodeJSON writes a value as JSON without HTML escapes.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}
