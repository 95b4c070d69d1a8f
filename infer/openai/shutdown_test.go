package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"graft/infer"
)

// openSite serves until the test shuts it down itself.
func openSite(t *testing.T, o Options, e infer.Options) *site {
	t.Helper()
	s := build(t, o, e)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr, s.url = ln.Addr().String(), "http://"+ln.Addr().String()
	go func() { s.done <- s.server.Serve(narrow{ln}) }()
	return s
}

// narrow gives connections little room for what the client has not taken.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return conn, err
}

// safeLog is a log that many write to.
type safeLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// ending is how an answer ended for its client.
type ending struct {
	status    int
	code      string // of the error, in the body or in the stream's last event
	message   string
	completed bool
	err       error
}

// endingOf reads an answer, whole or stream, to its end.
func endingOf(in io.Reader) (out ending) {
	resp, err := http.ReadResponse(newReader(in), nil)
	if err != nil {
		return ending{err: err}
	}
	defer resp.Body.Close()
	out.status = resp.StatusCode
	last := ""
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		events, err := frames(resp.Body)
		if err != nil || len(events) < 2 || events[len(events)-1] != "[DONE]" {
			out.err = fmt.Errorf("a stream that does not end: %v %w", events, err)
			return out
		}
		last = events[len(events)-2]
	} else {
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			out.err = err
			return out
		}
		last = string(raw)
	}
	var v struct {
		Error   *errorFields
		Choices []struct {
			FinishReason *string `json:"finish_reason"`
		}
	}
	if out.err = json.Unmarshal([]byte(last), &v); v.Error != nil && v.Error.Code != nil {
		out.code, out.message = *v.Error.Code, v.Error.Message
	}
	out.completed = len(v.Choices) > 0 && v.Choices[0].FinishReason != nil
	return out
}

// Whoever is cut at the end of the drain is told so, be it a stream or not, running or waiting, and has
// his answer when Shutdown returns.
func TestForcedShutdownTellsEverybody(t *testing.T) {
	log := &safeLog{}
	s := openSite(t, Options{Log: log, LogRequests: true}, infer.Options{MaxSeqs: 4, MaxBatchedTokens: 8})
	const clients = 64
	var conns []net.Conn
	for i := range clients {
		start, path := `"prompt":"1"`, "/v1/completions"
		if i%2 == 0 {
			start, path = sum, "/v1/chat/completions"
		}
		if i%8 == 1 {
			start = `"prompt":["1","2","3"]`
		}
		conns = append(conns, s.post(path, fmt.Sprintf(`{%s,"stream":%t,%s}`, start, i%4 < 2, long), -1))
	}
	s.inside(clients)
	s.eventually("some run, most wait", func(st infer.Stats) bool { return st.Running == 4 && st.Waiting > 40 && st.GeneratedTokens > 8 })
	free := s.hold()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := s.server.Shutdown(ctx)
	open := s.server.http.GetOpenConnectionsCount()
	free()
	require.NoError(t, <-s.done)
	require.ErrorContains(t, err, "requests were still under way")
	require.LessOrEqual(t, open, int32(0), "every answer is written when Shutdown returns") // -1: the listener counts
	cut := 0
	for i, conn := range conns {
		end := endingOf(conn)
		require.NoError(t, end.err, "client %d", i)
		if end.completed {
			continue
		}
		cut++
		require.Equal(t, codeShutdown, end.code, "client %d", i)
		require.Contains(t, end.message, "shutting down")
		require.Equal(t, map[bool]int{true: 200, false: 503}[i%4 < 2], end.status, "client %d", i)
		conn.Close()
	}
	require.Greater(t, cut, 40)
	s.clean()
	require.NotContains(t, log.String(), " 499 ")
	require.Equal(t, cut, strings.Count(log.String(), ` 503 `), "%s", log)
	require.Equal(t, cut, strings.Count(log.String(), `reason="server_error shutting_down"`))
}

// So is whoever comes at that very moment.
func TestRequestsThatMeetTheHalt(t *testing.T) {
	s := build(t, Options{LoadAdapters: true}, infer.Options{})
	s.server.halt(shuttingDown())
	here, err := os.Getwd()
	require.NoError(t, err)
	for path, body := range map[string]string{
		"/v1/completions": `{"prompt":["1","2"]}`, "/v1/chat/completions": `{` + sum + `,"stream":true}`,
		"/v1/load_lora_adapter": fmt.Sprintf(`{"lora_name":"a","lora_path":%q}`, here),
	} {
		ctx := request(path, body)
		s.server.handle(ctx)
		require.Equal(t, 503, ctx.Response.StatusCode(), "%s: %s", path, ctx.Response.Body())
		require.Contains(t, string(ctx.Response.Body()), codeShutdown)
		require.Equal(t, "1", string(ctx.Response.Header.Peek("Retry-After")))
	}
}

func TestArrivalsDuringForcedShutdown(t *testing.T) {
	for range 5 {
		log := &safeLog{}
		s := openSite(t, Options{Log: log, LogRequests: true}, infer.Options{MaxSeqs: 2})
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		ends := make(chan ending, 1000)
		for i := range 8 {
			all.Go(func() {
				for {
					conn, err := net.Dial("tcp", s.addr)
					if err != nil {
						return // nobody is let in any more
					}
					body := fmt.Sprintf(`{"prompt":"1","stream":%t,%s}`, i%2 == 0, long)
					fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					end := endingOf(conn)
					conn.Close()
					if end.status != 0 { // else it was still in the listener's queue
						ends <- end
					}
				}
			})
		}
		s.eventually("under way", func(st infer.Stats) bool { return st.GeneratedTokens > 0 })
		cancel()
		_ = s.server.Shutdown(ctx)
		require.NoError(t, <-s.done)
		all.Wait()
		close(ends)
		for end := range ends {
			require.NoError(t, end.err)
			require.True(t, end.completed || end.code == codeShutdown, "%+v", end)
		}
		require.NotContains(t, log.String(), " 499 ")
		s.clean()
	}
}

// A client that takes nothing holds up neither a forced shutdown nor the others.
func TestSlowClientDoesNotHoldShutdown(t *testing.T) {
	s := openSite(t, Options{StallTimeout: time.Hour}, infer.Options{MaxSeqs: 64, MaxModelLen: 128})
	s.server.grace = 200 * time.Millisecond
	conn := s.post("/v1/chat/completions", `{`+sum+`,"stream":true,"n":64,"logprobs":true,"top_logprobs":20,"ignore_eos":true,"max_tokens":60}`, -1)
	defer conn.Close()
	s.eventually("all is computed", func(st infer.Stats) bool { return st.Truncated == 64 })
	s.inside(1)
	s.ask("/v1/completions", `{"prompt":"1","max_tokens":2}`)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Error(t, s.server.Shutdown(ctx))
	require.NoError(t, <-s.done)
	s.clean()
}

// Nobody was under way: then it is a clean end, however late.
func TestIdleConnectionsAreNoFailure(t *testing.T) {
	for range 10 {
		s := openSite(t, Options{}, infer.Options{})
		s.server.grace = 10 * time.Millisecond
		idle, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		defer idle.Close()
		require.Equal(t, 200, s.do("GET", "/health", "").status)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, s.server.Shutdown(ctx))
		require.NoError(t, <-s.done)
	}
}

// Every line of the log has one form, whoever caused it, and quotes nobody.
func TestLogForm(t *testing.T) {
	log := &safeLog{}
	s := newSite(t, Options{Log: log, LogRequests: true, APIKeys: []string{"sesame"}, MaxBody: 4096}, infer.Options{})
	ask := func(path, body string) {
		s.do("POST", path, body, "Authorization", "Bearer sesame", "X-Request-Id", "me")
	}
	ask("/v1/completions", `{"prompt":"confidential","n":3,"max_tokens":2,"ignore_eos":true,"temperature":1}`)
	ask("/v1/chat/completions", `{`+sum+`,"max_tokens":2,"ignore_eos":true,"stream":true}`)
	ask("/v1/completions", `{"prompt":"confidential","temperature":7}`)
	ask("/v1/completions", `{"prompt":"x","confidential":1}`)
	ask("/v1/completions", `{"prompt":"x","model":"confidential"}`)
	ask("/v1/confidential", `{}`)
	s.do("CONFIDENTIAL", "/v1/completions", "", "X-Request-Id", "me")
	for _, raw := range []string{
		"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sesame\r\nconfidential\r\n\r\n",
		"confidential sesame\r\n\r\n",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sesame\r\nContent-Length: 9000\r\n\r\nconfidential",
		"GET /health HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("sesame", 4000) + "\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		_, _ = conn.Write([]byte(raw))
		var resp fasthttp.Response
		_ = resp.Read(newReader(conn))
		conn.Close()
	}
	require.Eventually(t, func() bool { return strings.Count(log.String(), "unreadable") == 4 }, time.Minute, time.Millisecond, "%s", log)
	for _, want := range []string{
		`me POST /v1/completions 200 \d+m?s finish=length\*3$`,
		`me POST /v1/chat/completions 200 \d+m?s finish=length$`,
		`me POST /v1/completions 400 \d+m?s reason="invalid_request_error: temperature"$`,
		`me POST /v1/completions 400 \d+m?s reason="invalid_request_error: unknown field"$`,
		`me POST /v1/completions 404 \d+m?s reason="not_found_error model_not_found: model"$`,
		`me POST other 404 \d+m?s reason="not_found_error"$`,
		`me OTHER other 405 \d+m?s reason="invalid_request_error"$`,
		`[0-9a-f]{32} - unreadable 400 \d+m?s reason="invalid_request_error not_http"$`,
		`[0-9a-f]{32} - unreadable 413 \d+m?s reason="invalid_request_error body_too_large"$`,
		`[0-9a-f]{32} - unreadable 431 \d+m?s reason="invalid_request_error header_too_large"$`,
	} {
		require.Regexp(t, `(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d `+want, log.String())
	}
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		require.Regexp(t, `^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \S+ (GET|POST|OTHER|-) \S+ \d{3} \d+m?s( finish=\S+)?( reason="[^"]*")?$`, line)
	}
	require.NotContains(t, strings.ToLower(log.String()), "confidential")
	require.NotContains(t, log.String(), "sesame")
	require.Regexp(t, `graft:connection_errors_total\{cause="request"\} [1-9]`, string(s.do("GET", "/metrics", "", "Authorization", "Bearer sesame").raw))
}

// What fasthttp says of the limit on connections reaches the operator in our words.
func TestTransportLog(t *testing.T) {
	log := &safeLog{}
	s := build(t, Options{Log: log, MaxConnections: 7}, infer.Options{})
	l := &transportLog{s.server}
	l.Printf("The incoming connection cannot be served, because %d concurrent connections are served. Try increasing Server.Concurrency", 7)
	require.Contains(t, log.String(), "- connections: 7 are open")
	before := log.String()
	l.Printf("error when serving connection %q<->%q: %v", "a", "b", fmt.Errorf("error when reading request headers: Authorization: sesame"))
	l.Printf("whatever")
	require.Equal(t, before, log.String())
	p := &page{}
	s.server.metrics.write(p)
	for _, want := range []string{`{cause="limit"} 1`, `{cause="request"} 1`, `{cause="other"} 1`} {
		require.Contains(t, p.String(), "graft:connection_errors_total"+want)
	}
}

// An answer is written after its handler has returned: Shutdown waits for that too, forced or not.
func TestShutdownWaitsForAnswersBeingWritten(t *testing.T) {
	for _, forced := range []bool{false, true} {
		s := openSite(t, Options{}, infer.Options{MaxSeqs: 64, MaxModelLen: 128})
		s.server.grace = time.Minute
		conn := s.post("/v1/chat/completions", `{`+sum+`,"n":16,"logprobs":true,"top_logprobs":20,"ignore_eos":true,"max_tokens":60}`, -1)
		s.eventually("all is computed", func(st infer.Stats) bool { return st.Truncated == 16 })
		s.inside(0)
		ctx, cancel := context.WithCancel(context.Background())
		if forced {
			cancel()
		}
		ended := make(chan error, 1)
		go func() { ended <- s.server.Shutdown(ctx) }()
		require.Never(t, func() bool { return len(ended) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
		end := endingOf(conn)
		require.NoError(t, end.err)
		require.True(t, end.completed)
		conn.Close()
		require.NoError(t, <-ended)
		require.NoError(t, <-s.done)
		cancel()
	}
}
