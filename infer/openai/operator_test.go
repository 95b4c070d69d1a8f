package openai

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"graft/infer"
)

func TestLoadingAdapters(t *testing.T) {
	s := newSite(t, Options{LoadAdapters: true}, infer.Options{})
	dirs := map[string]string{}
	for i, name := range []string{"one", "two"} {
		ad := s.tune(uint64(100+i), uint64(1+i))
		dirs[name] = filepath.Join(t.TempDir(), name)
		require.NoError(t, os.MkdirAll(dirs[name], 0o755))
		require.NoError(t, s.engine.Exclusive(context.Background(), func() error {
			defer ad.Free()
			return s.m.SavePEFT(ad, dirs[name])
		}))
	}
	load := func(name, path, more string) *reply {
		return s.do("POST", "/v1/load_lora_adapter", fmt.Sprintf(`{"lora_name":%q,"lora_path":%q%s}`, name, path, more))
	}
	answer := func(model string) string {
		return essence(t, s.ask("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"12 + 7 = 19, 3 + 4 =","temperature":0,"max_tokens":8,"ignore_eos":true,"logprobs":0}`, model)))
	}
	base, used := answer("base"), s.m.Arena.Used()
	require.Equal(t, 404, load("a", "/does/not/exist", "").status)
	require.Equal(t, 400, load("base", dirs["one"], "").status)
	require.Equal(t, 400, load("a", t.TempDir(), "").status, "a folder without an adapter")
	ok := load("a", dirs["one"], "")
	require.Equal(t, "Success: LoRA adapter 'a' added successfully.", string(ok.raw))
	one := answer("a")
	require.NotEqual(t, base, one)
	require.Equal(t, "base", text(t, s.do("GET", "/v1/models/a", "").json(t), "parent"))
	require.Equal(t, 400, load("a", dirs["two"], "").status, "the name is taken")
	require.Equal(t, one, answer("a"))

	require.Equal(t, 200, load("a", dirs["two"], `,"load_inplace":true`).status)
	two := answer("a")
	require.NotEqual(t, one, two, "new weights under an old name: no cached prefix survives")
	require.Equal(t, base, answer("base"))

	// An adapter that is unloaded while a request runs on it stays until the request has ended.
	conn := s.post("/v1/completions", `{"model":"a","prompt":"1",`+long+`}`, -1)
	s.eventually("running", func(st infer.Stats) bool { return st.Running == 1 })
	unload := s.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"a"}`)
	require.Equal(t, "Success: LoRA adapter 'a' removed successfully.", string(unload.raw))
	require.Equal(t, 404, s.do("POST", "/v1/completions", `{"model":"a","prompt":"1"}`).status)
	require.Equal(t, 404, s.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"a"}`).status)
	require.Equal(t, 404, s.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"base"}`).status)
	conn.Close()
	s.clean()
	s.inside(0)
	require.Equal(t, used, s.m.Arena.Used(), "every adapter's memory came back")
	require.Equal(t, 200, load("a", dirs["one"], "").status)
	require.Equal(t, one, answer("a"))

	closed := newSite(t, Options{}, infer.Options{})
	require.Equal(t, 404, closed.do("POST", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"x"}`).status, "only where the operator allows it")
}

func TestMetrics(t *testing.T) {
	s := newSite(t, Options{Names: []string{`a"b\c`}}, infer.Options{})
	s.ask("/v1/completions", `{"prompt":["1","2"],"n":2,"max_tokens":5,"ignore_eos":true}`)
	s.do("POST", "/v1/completions", `{}`)
	r := s.do("GET", "/metrics", "")
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", r.header.Get("Content-Type"))
	page := string(r.raw)
	model := `model_name="a\"b\\c",engine="0"`
	for _, want := range []string{
		"vllm:generation_tokens_total{" + model + "} 20\n", "vllm:prompt_tokens_total{" + model + "} 2\n",
		`vllm:request_success_total{` + model + `,finished_reason="length"} 4` + "\n",
		"vllm:num_requests_running{" + model + "} 0\n", "vllm:time_to_first_token_seconds_count{" + model + "} 1\n",
		"vllm:request_generation_tokens_bucket{" + model + `,le="5"} 4` + "\n", "vllm:request_generation_tokens_sum{" + model + "} 20\n",
		`http_requests_total{handler="/v1/completions",status="200"} 1` + "\n", `http_requests_total{handler="/v1/completions",status="400"} 1` + "\n",
	} {
		require.Contains(t, page, want)
	}
	seen := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(page), "\n") {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ = strings.Cut(name, " ")
			require.False(t, seen[name], "%s twice", name)
			seen[name] = true
			continue
		}
		if !strings.HasPrefix(line, "#") {
			name := strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if trimmed := strings.TrimSuffix(name, suffix); seen[trimmed] {
					name = trimmed
				}
			}
			require.True(t, seen[name], "%s has no TYPE", line)
		}
	}
}
