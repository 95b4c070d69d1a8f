package openai

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"graft/infer"
	"graft/infer/paged"
)

// metrics are the server's own figures; the rest of /metrics comes from Engine.Stats.
type metrics struct {
	mu      sync.Mutex
	answers map[answerKey]uint64
	broken  map[string]uint64 // connections by what broke them

	answerTime, firstTokenTime, wholeTime  histogram
	promptTokens, generatedTokens, choices histogram
	maxTokens                              histogram
}

type answerKey struct {
	path   string
	status int
}

// histogram counts observations by upper bounds. Its metrics' mutex guards it.
type histogram struct {
	bounds []float64
	counts []uint64 // one more than bounds
	sum    float64
}

func (h *histogram) observe(v float64) {
	h.counts[sort.SearchFloat64s(h.bounds, v)]++
	h.sum += v
}

// The buckets of vLLM, which dashboards expect.
var (
	firstTokenBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	latencyBuckets    = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	choiceBuckets     = []float64{1, 2, 5, 10, 20}
)

// decades are 1, 2, 5, 10, 20, 50 … up to most.
func decades(most int) []float64 {
	var out []float64
	for step := 1.0; ; step *= 10 {
		for _, m := range [...]float64{1, 2, 5} {
			if m*step > float64(most) {
				return out
			}
			out = append(out, m*step)
		}
	}
}

func (m *metrics) init(maxLen int) {
	m.answers, m.broken = map[answerKey]uint64{}, map[string]uint64{}
	lengths := decades(maxLen)
	for h, bounds := range map[*histogram][]float64{
		&m.answerTime: latencyBuckets, &m.firstTokenTime: firstTokenBuckets, &m.wholeTime: latencyBuckets,
		&m.promptTokens: lengths, &m.generatedTokens: lengths, &m.maxTokens: lengths, &m.choices: choiceBuckets,
	} {
		h.bounds, h.counts = bounds, make([]uint64, len(bounds)+1)
	}
}

// answered counts an HTTP answer.
func (m *metrics) answered(path string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[answerKey{path, status}]++
	m.answerTime.observe(took.Seconds())
}

// broke counts a connection that did not end in an answer.
func (m *metrics) broke(cause string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken[cause]++
}

// began counts prompts that were accepted.
func (m *metrics) began(prompts int, want *sampling) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range prompts {
		m.choices.observe(float64(want.N))
		m.maxTokens.observe(float64(want.MaxTokens))
	}
}

func (m *metrics) firstToken(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.firstTokenTime.observe(took.Seconds())
}

// finished counts a choice that ended by itself.
func (m *metrics) finished(ev *infer.Event, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wholeTime.observe(took.Seconds())
	m.promptTokens.observe(float64(ev.Usage.PromptTokens))
	m.generatedTokens.observe(float64(ev.Usage.CompletionTokens))
}

// page writes the text format of Prometheus.
type page struct {
	bytes.Buffer
	model string // label of every engine metric
}

func (p *page) head(name, kind, help string) {
	fmt.Fprintf(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (p *page) value(name, kind, help string, v float64) {
	p.head(name, kind, help)
	fmt.Fprintf(p, "%s{%s} %s\n", name, p.model, number(v))
}

func (p *page) histogram(name, help, labels string, h *histogram) {
	p.head(name, "histogram", help)
	sep, total := "", uint64(0)
	if labels != "" {
		sep = ","
	}
	for i, n := range h.counts {
		total += n
		bound := math.Inf(1)
		if i < len(h.bounds) {
			bound = h.bounds[i]
		}
		fmt.Fprintf(p, "%s_bucket{%s%sle=\"%s\"} %d\n", name, labels, sep, number(bound), total)
	}
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(p, "%s_sum%s %s\n%s_count%s %d\n", name, labels, number(h.sum), name, labels, total)
}

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// quoted escapes a label's value.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// writeMetrics answers GET /metrics, with vLLM's names for what vLLM has too.
func (s *Server) writeMetrics(c *call) {
	p := &page{model: "model_name=" + quoted(s.opt.Names[0]) + `,engine="0"`}
	s.engineMetrics(p, s.engine.Stats())
	s.metrics.write(p)
	c.http.SetStatusCode(200)
	c.http.SetContentType("text/plain; version=0.0.4; charset=utf-8")
	c.http.SetBody(p.Bytes())
}

func (s *Server) engineMetrics(p *page, t infer.Stats) {
	p.value("vllm:num_requests_running", "gauge", "Sequences that hold pages.", float64(t.Running))
	p.value("vllm:num_requests_waiting", "gauge", "Sequences that wait to begin.", float64(t.Waiting))
	p.value("vllm:kv_cache_usage_perc", "gauge", "Share of the pages in use; 1 is all.", float64(t.PagesUsed)/float64(max(1, t.PagesTotal)))
	p.value("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", float64(t.CacheQueries))
	p.value("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", float64(t.CacheHits))
	p.value("vllm:num_preemptions_total", "counter", "Sequences that gave their pages back and began again.", float64(t.Preemptions))
	p.value("vllm:prompt_tokens_total", "counter", "Prompt tokens computed.", float64(t.PromptTokens))
	p.value("vllm:generation_tokens_total", "counter", "Tokens generated.", float64(t.GeneratedTokens))
	p.head("vllm:request_success_total", "counter", "Sequences by how they ended.")
	for _, f := range [...]struct {
		why string
		n   uint64
	}{{"stop", t.Stopped}, {"length", t.Truncated}, {"abort", t.Aborted}, {"error", t.Failed}} {
		fmt.Fprintf(p, "vllm:request_success_total{%s,finished_reason=%q} %d\n", p.model, f.why, f.n)
	}
	o := s.engine.Options()
	p.head("vllm:cache_config_info", "gauge", "How the cache was made.")
	fmt.Fprintf(p, "vllm:cache_config_info{%s,block_size=\"%d\",num_gpu_blocks=\"%d\",enable_prefix_caching=\"%t\"} 1\n", p.model, paged.PageSize, t.PagesTotal, !o.NoPrefixCache)
}

func (m *metrics) write(p *page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.histogram("vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", p.model, &m.firstTokenTime)
	p.histogram("vllm:e2e_request_latency_seconds", "From a request's arrival to the end of a choice.", p.model, &m.wholeTime)
	p.histogram("vllm:request_prompt_tokens", "Tokens of a finished choice's prompt.", p.model, &m.promptTokens)
	p.histogram("vllm:request_generation_tokens", "Tokens that a finished choice generated.", p.model, &m.generatedTokens)
	p.histogram("vllm:request_params_max_tokens", "max_tokens of accepted prompts.", p.model, &m.maxTokens)
	p.histogram("vllm:request_params_n", "n of accepted prompts.", p.model, &m.choices)
	p.head("http_requests_total", "counter", "Answers by endpoint and status; 499: the client left.")
	keys := make([]answerKey, 0, len(m.answers))
	for k := range m.answers {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		return keys[i].path < keys[j].path || keys[i].path == keys[j].path && keys[i].status < keys[j].status
	})
	for _, k := range keys {
		fmt.Fprintf(p, "http_requests_total{handler=%s,status=\"%d\"} %d\n", quoted(k.path), k.status, m.answers[k])
	}
	p.head("graft:connection_errors_total", "counter", "Connections by what broke them, as the transport tells it.")
	for _, cause := range slices.Sorted(maps.Keys(m.broken)) {
		fmt.Fprintf(p, "graft:connection_errors_total{cause=%q} %d\n", cause, m.broken[cause])
	}
	p.histogram("http_request_duration_seconds", "From a request's arrival to the end of its answer.", "", &m.answerTime)
}
