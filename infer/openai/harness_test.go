package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"graft/infer"
	"graft/kernels"
	"graft/kernels/cpu"
	"graft/kernels/rng"
	"graft/model"
	"graft/model/tokenizer"
	"graft/tiny"
	"graft/weights"
)

// site is a running server on the embedded model, and a client.
type site struct {
	t      testing.TB
	m      *model.Model
	engine *infer.Engine
	server *Server
	url    string
	addr   string
	client *http.Client
	done   chan error
}

// newSite serves until the test ends; then no page may be in use.
func newSite(t testing.TB, o Options, e infer.Options) *site {
	t.Helper()
	return build(t, o, e).listen()
}

// listen serves until the test ends; then no page may be in use.
func (s *site) listen() *site {
	t := s.t
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = ln.Addr().String()
	s.url = "http://" + s.addr
	go func() { s.done <- s.server.Serve(ln) }()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		s.clean()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, s.server.Shutdown(ctx))
		require.NoError(t, <-s.done)
	})
	return s
}

// build makes a server that does not listen.
func build(t testing.TB, o Options, e infer.Options) *site {
	t.Helper()
	return buildWith(t, o, e, func(tok *tokenizer.Tokenizer) *tokenizer.Tokenizer { return tok })
}

// buildWith makes one whose tokens are spelled otherwise.
func buildWith(t testing.TB, o Options, e infer.Options, respell func(*tokenizer.Tokenizer) *tokenizer.Tokenizer) *site {
	t.Helper()
	be := cpu.New(cpu.Options{Threads: 2})
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	file, err := tiny.Open()
	require.NoError(t, err)
	files, err := model.FromGGUF(file, model.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { files.Close() })
	arena := weights.NewArena(kernels.Checked(be), 0)
	t.Cleanup(arena.Close)
	m, err := files.Load(arena)
	require.NoError(t, err)
	e.Threads, e.RankCols = 2, 16
	if e.Pages == 0 {
		e.Pages = 256
	}
	engine, err := infer.New(m, respell(files.Tokenizer), e)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	o.Names = append(o.Names, "base")
	server, err := New(engine, o)
	require.NoError(t, err)
	return &site{t: t, m: m, engine: engine, server: server, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, done: make(chan error, 1)}
}

// clean waits until nothing is computed and checks that every page is free. It asks between two steps, when
// the engine has seen everything that was submitted before.
func (s *site) clean() {
	s.t.Helper()
	ask := func() (busy bool) {
		require.NoError(s.t, s.engine.Exclusive(context.Background(), func() error {
			st := s.engine.Stats()
			if busy = st.Running+st.Waiting != 0; busy {
				return nil
			}
			if used := s.engine.Pool().Used(); used != 0 {
				return fmt.Errorf("%d pages in use", used)
			}
			return s.engine.Pool().Check()
		}))
		return busy
	}
	for end := time.Now().Add(time.Minute); ask(); time.Sleep(time.Millisecond) {
		require.True(s.t, time.Now().Before(end), "still busy after a minute")
	}
}

// tune makes an adapter that changes the model visibly.
func (s *site) tune(id uint64, seed uint64) *weights.Adapter {
	s.t.Helper()
	var ad *weights.Adapter
	require.NoError(s.t, s.engine.Exclusive(context.Background(), func() (err error) {
		ad, err = s.m.NewAdapter(id, weights.AdapterConfig{R: 4, Alpha: 8, TargetModules: []string{"all-linear"}}, seed, false)
		if err != nil {
			return err
		}
		src := rng.New(seed, "test")
		for i, p := range ad.Pairs() {
			var raw []byte
			for j := range p.B.Out * p.B.In {
				u := float32(src.Uniform(uint32(i), uint32(j), 0, 0)-0.5) * 0.5
				b := math.Float32bits(u)
				raw = append(raw, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
			}
			s.m.Backend().Pack(p.B, 0, raw)
		}
		return s.m.Backend().Sync()
	}))
	return ad
}

// reply is an answer read to its end.
type reply struct {
	status int
	header http.Header
	raw    []byte
}

func (r *reply) json(t testing.TB) map[string]any {
	t.Helper()
	out := map[string]any{}
	require.NoError(t, json.Unmarshal(r.raw, &out), "%s", r.raw)
	return out
}

func (s *site) do(method, path, body string, header ...string) *reply {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return &reply{resp.StatusCode, resp.Header, raw}
}

// ask posts and wants 200.
func (s *site) ask(path, body string) map[string]any {
	s.t.Helper()
	r := s.do("POST", path, body)
	require.Equal(s.t, 200, r.status, "%s", r.raw)
	return r.json(s.t)
}

// stream posts and returns the data of every event, [DONE] included, with the framing checked.
func (s *site) stream(path, body string) []string {
	s.t.Helper()
	r := s.do("POST", path, body)
	require.Equal(s.t, 200, r.status, "%s", r.raw)
	require.Equal(s.t, "text/event-stream; charset=utf-8", r.header.Get("Content-Type"))
	events, err := frames(bytes.NewReader(r.raw))
	require.NoError(s.t, err)
	require.NotEmpty(s.t, events)
	require.Equal(s.t, "[DONE]", events[len(events)-1])
	return events
}

// frames splits a stream of "data: X\n\n" and nothing else.
func frames(r io.Reader) ([]string, error) {
	var out []string
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
		if !ok {
			return out, fmt.Errorf("line %q does not begin with data:", line)
		}
		if empty, err := in.ReadString('\n'); err != nil || empty != "\n" {
			return out, fmt.Errorf("no empty line behind %q", line)
		}
		out = append(out, data)
	}
}

// chunks decodes the events of a stream but [DONE].
func chunks(t testing.TB, events []string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, e := range events[:len(events)-1] {
		v := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(e), &v), "%s", e)
		out = append(out, v)
	}
	return out
}

// at walks into a decoded value: keys and indices.
func at(t testing.TB, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := v.(map[string]any)
			require.True(t, ok, "%v is no object", v)
			v, ok = m[step]
			require.True(t, ok, "%v has no %s", m, step)
		case int:
			l, ok := v.([]any)
			require.True(t, ok, "%v is no array", v)
			require.Less(t, step, len(l))
			v = l[step]
		}
	}
	return v
}

func text(t testing.TB, v any, path ...any) string {
	t.Helper()
	s, ok := at(t, v, path...).(string)
	require.True(t, ok)
	return s
}

// joined is the text of every choice of a stream.
func joined(t testing.TB, events []string, n int) []string {
	t.Helper()
	out := make([]string, n)
	for _, c := range chunks(t, events) {
		for _, choice := range at(t, c, "choices").([]any) {
			i := int(at(t, choice, "index").(float64))
			if m := choice.(map[string]any); m["delta"] != nil {
				if content, ok := m["delta"].(map[string]any)["content"]; ok {
					out[i] += content.(string)
				}
			} else {
				out[i] += text(t, choice, "text")
			}
		}
	}
	return out
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

// nowhere is the connection of a request that came over none.
type nowhere struct{ net.Conn }

func (nowhere) SetWriteDeadline(time.Time) error { return nil }
func (nowhere) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (nowhere) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
