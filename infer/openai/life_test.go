package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"graft/infer"
)

// long is a completion that goes on for a while unless somebody stops it.
const long = `"ignore_eos":true,"max_tokens":400,"temperature":1`

// post writes a request on a connection of its own, whole or up to a byte.
func (s *site) post(path, body string, bytes int) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(s.t, err)
	raw := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	if bytes >= 0 {
		raw = raw[:min(bytes, len(raw))]
	}
	_, err = conn.Write([]byte(raw))
	require.NoError(s.t, err)
	return conn
}

func (s *site) eventually(what string, f func(infer.Stats) bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return f(s.engine.Stats()) }, time.Minute, time.Millisecond, what)
}

// hold keeps the device until the function it returns is called.
func (s *site) hold() (release func()) {
	s.t.Helper()
	held, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.engine.Exclusive(context.Background(), func() error {
			close(held)
			<-free
			return nil
		})
	}()
	<-held
	return func() {
		close(free)
		require.NoError(s.t, <-ended)
	}
}

// A client that leaves ends its request, wherever it is, and nobody else's.
func TestDisconnect(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
			body := func(more string) string {
				start := `"prompt":[` + strings.Repeat("1,", 99) + `1]`
				if strings.Contains(path, "chat") {
					start = `"messages":[{"role":"user","content":"` + strings.Repeat("1", 90) + `"}]`
				}
				return fmt.Sprintf(`{%s,"stream":%t,%s%s}`, start, stream, long, more)
			}
			t.Run(fmt.Sprintf("%s stream %t", path, stream), func(t *testing.T) {
				s := newSite(t, Options{}, infer.Options{MaxSeqs: 1, MaxBatchedTokens: 4})
				t.Run("before the step that would begin it", func(t *testing.T) {
					free := s.hold()
					conn := s.post(path, body(""), -1)
					s.inside(1)
					conn.Close()
					s.inside(0) // the handler has let go though the device is held
					free()
					s.clean()
					require.Zero(t, s.engine.Stats().GeneratedTokens)
				})
				t.Run("queued", func(t *testing.T) {
					before := s.engine.Stats()
					first := s.post(path, body(""), -1)
					s.eventually("the first runs", func(st infer.Stats) bool { return st.Running == 1 })
					second := s.post(path, body(""), -1)
					s.eventually("the second waits", func(st infer.Stats) bool { return st.Waiting == 1 || st.Running == 0 })
					second.Close()
					s.eventually("the second is gone", func(st infer.Stats) bool { return st.Aborted > before.Aborted })
					s.eventually("the first ends by itself", func(st infer.Stats) bool { return st.Truncated > before.Truncated })
					first.Close()
				})
				t.Run("in its prompt or under way", func(t *testing.T) {
					for _, after := range []uint64{1, 8, 100, 130} {
						before := s.engine.Stats()
						conn := s.post(path, body(`,"cache_salt":"`+fmt.Sprint(after)+`"`), -1)
						s.eventually("computed so far", func(st infer.Stats) bool {
							return st.PromptTokens+st.GeneratedTokens >= before.PromptTokens+before.GeneratedTokens+after
						})
						conn.Close()
						s.eventually("aborted", func(st infer.Stats) bool { return st.Aborted+st.Truncated > before.Aborted+before.Truncated })
						s.clean()
						require.Equal(t, before.Aborted+1, s.engine.Stats().Aborted, "it ended by itself before the server saw the client leave")
					}
				})
				t.Run("half-way through the request", func(t *testing.T) {
					before := s.engine.Stats()
					whole := body("")
					for _, n := range []int{0, 1, 10, 40, 80, 100, 200} {
						s.post(path, whole, n).Close()
					}
					s.inside(0)
					require.Equal(t, before.PromptTokens, s.engine.Stats().PromptTokens)
				})
			})
		}
	}
}

// inside waits until that many requests are in the server.
func (s *site) inside(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		s.server.gate.mu.Lock()
		defer s.server.gate.mu.Unlock()
		return len(s.server.gate.inside) == n
	}, time.Minute, time.Millisecond)
}

// A client that reads the beginning of a stream and leaves.
func TestDisconnectInStream(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{})
	conn := s.post("/v1/chat/completions", `{`+sum+`,"stream":true,"n":3,`+long+`}`, -1)
	in := bufio.NewReader(conn)
	for tokens := 0; tokens < 4; {
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, "data: ") && !strings.Contains(line, `"role"`) {
			tokens++
		}
	}
	conn.Close()
	s.clean()
	s.inside(0)
	require.EqualValues(t, 3, s.engine.Stats().Aborted)
}

// What a request gets does not depend on who else asks: bit for bit, streams and whole answers.
func TestConcurrentRequestsEqualSingleOnes(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{MaxSeqs: 5, MaxBatchedTokens: 7, Pages: 40, MaxModelLen: 128})
	ad := s.tune(1, 7)
	s.server.models.adapters = append(s.server.models.adapters, &entry{name: "tuned", adapter: ad})
	type question struct{ path, body string }
	var questions []question
	for i := range 12 {
		model := []string{"base", "tuned"}[i%2]
		questions = append(questions,
			question{"/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"%d + 7","seed":%d,"n":2,"max_tokens":20,"ignore_eos":true,"logprobs":2`, model, i, i)},
			question{"/v1/chat/completions", fmt.Sprintf(`{"model":%q,%s,"seed":%d,"max_tokens":20,"ignore_eos":true,"logprobs":true,"return_token_ids":true`, model, sum, i)})
	}
	single := make([]string, len(questions))
	for i, q := range questions {
		single[i] = essence(t, s.ask(q.path, q.body+`}`))
	}
	require.NotEqual(t, single[1], single[3], "the adapter changes answers")
	for _, stream := range []bool{false, true} {
		got := make([]string, len(questions))
		streams := make([][]string, len(questions))
		var all sync.WaitGroup
		for i, q := range questions {
			all.Go(func() {
				if stream {
					streams[i] = s.stream(q.path, q.body+`,"stream":true}`)
				} else {
					got[i] = essence(t, s.ask(q.path, q.body+`}`))
				}
			})
		}
		all.Wait()
		for i := range questions {
			if stream {
				got[i] = essence(t, gather(t, streams[i]))
			}
			require.Equal(t, single[i], got[i], "%s stream %t", questions[i].body, stream)
		}
	}
}

// essence is what must not change: choices without what counts time.
func essence(t *testing.T, answer map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(answer["choices"])
	require.NoError(t, err)
	return string(raw)
}

// gather puts the chunks of a stream together as a whole answer.
func gather(t *testing.T, events []string) map[string]any {
	t.Helper()
	var choices []any
	for _, c := range chunks(t, events) {
		part := at(t, c, "choices", 0).(map[string]any)
		i := int(part["index"].(float64))
		for len(choices) <= i {
			choices = append(choices, map[string]any{})
		}
		whole := choices[i].(map[string]any)
		for key, v := range part {
			switch {
			case key == "delta":
				m, ok := whole["message"].(map[string]any)
				if !ok {
					m = map[string]any{"role": "assistant", "content": "", "refusal": nil}
					whole["message"] = m
				}
				if content, ok := v.(map[string]any)["content"]; ok {
					m["content"] = m["content"].(string) + content.(string)
				}
			case key == "text":
				old, _ := whole[key].(string)
				whole[key] = old + v.(string)
			case v == nil && whole[key] != nil:
			default:
				whole[key] = merge(whole[key], v)
			}
		}
		if _, ok := whole["stop_reason"]; !ok {
			whole["stop_reason"] = nil
		}
	}
	return map[string]any{"choices": choices}
}

// merge appends lists, also inside objects; other values replace.
func merge(old, more any) any {
	switch more := more.(type) {
	case []any:
		list, _ := old.([]any)
		return append(list, more...)
	case map[string]any:
		m, ok := old.(map[string]any)
		if !ok {
			return more
		}
		for k, v := range more {
			m[k] = merge(m[k], v)
		}
		return m
	}
	return more
}

func TestFullQueueAnswers503(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{MaxSeqs: 1, MaxBatchedTokens: 4, MaxWaiting: 2})
	free := s.hold()
	var conns []net.Conn
	for i := range 2 {
		conns = append(conns, s.post("/v1/completions", `{"prompt":"1",`+long+`}`, -1))
		s.inside(i + 1)
	}
	r := s.do("POST", "/v1/completions", `{"prompt":["1","1","1"]}`) // more than the queue holds
	require.Equal(t, 503, r.status, "%s", r.raw)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.Equal(t, "rate_limit_error", text(t, r.json(t), "error", "type"))
	for _, c := range conns {
		c.Close()
	}
	s.inside(0)
	free()
	s.clean()
	s.ask("/v1/completions", `{"prompt":"1"}`)
}

// A device that computes nothing but NaN ends the requests, in words, and not the server.
func TestErrorsInsideStreams(t *testing.T) {
	s := newSite(t, Options{}, infer.Options{})
	ad := s.tune(1, 1)
	s.server.models.adapters = append(s.server.models.adapters, &entry{name: "broken", adapter: ad})
	require.NoError(t, s.engine.Exclusive(context.Background(), func() error {
		for _, p := range ad.Pairs() {
			raw := make([]byte, 4*p.B.Out*p.B.In)
			for i := 0; i < len(raw); i += 4 {
				copy(raw[i:], []byte{0, 0, 0xC0, 0x7F})
			}
			s.m.Backend().Pack(p.B, 0, raw)
		}
		return s.m.Backend().Sync()
	}))
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		start := `"prompt":"1"`
		if strings.Contains(path, "chat") {
			start = sum
		}
		whole := s.do("POST", path, `{"model":"broken",`+start+`}`)
		require.Equal(t, 500, whole.status, "%s", whole.raw)
		require.Equal(t, "server_error", text(t, whole.json(t), "error", "type"))
		events := s.stream(path, `{"model":"broken","stream":true,`+start+`}`)
		all := chunks(t, events)
		require.Equal(t, "server_error", text(t, all[len(all)-1], "error", "type"))
		s.ask(path, `{`+start+`,"max_tokens":2}`)
	}
}

// Shutdown waits for what is under way; when its time is over it cancels.
func TestShutdown(t *testing.T) {
	for _, patient := range []bool{true, false} {
		s := build(t, Options{}, infer.Options{})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s.addr = ln.Addr().String()
		go func() { s.done <- s.server.Serve(ln) }()
		free := s.hold()
		conn := s.post("/v1/completions", `{"prompt":"1","max_tokens":3,"ignore_eos":true}`, -1)
		s.inside(1)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.server.Shutdown(ctx) }()
		require.Eventually(t, func() bool {
			late, err := net.Dial("tcp", s.addr)
			if err == nil {
				late.Close()
			}
			return err != nil
		}, time.Minute, time.Millisecond, "nobody is let in any more")
		if patient {
			free()
			require.NoError(t, <-ended)
			raw, err := bufio.NewReader(conn).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "HTTP/1.1 200 OK\r\n", raw)
		} else {
			cancel()
			require.Error(t, <-ended)
			free()
			raw, err := bufio.NewReader(conn).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "HTTP/1.1 503 Service Unavailable\r\n", raw)
		}
		require.NoError(t, <-s.done)
		cancel()
		conn.Close()
		s.clean()
	}
}
