package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// When the time to drain is over, everybody who is cut is told so, and the exit code is the one that
// -h gives.
func TestDrainTimeout(t *testing.T) {
	var help bytes.Buffer
	require.Equal(t, exitDone, run([]string{"--help"}, &help, io.Discard, nil))
	require.Contains(t, strings.Join(strings.Fields(help.String()), " "), "1 failed, or requests were cut when the server stopped")

	p := start(t, "--model", "tiny", "--max-num-seqs", "1", "--max-num-batched-tokens", "1", "--drain-timeout", "0s")
	const clients = 24
	answers := make([]string, clients)
	var begun, all sync.WaitGroup
	begun.Add(1)
	for i := range clients {
		if i == 1 {
			begun.Wait() // the first one runs, the others wait
		}
		all.Go(func() {
			body := fmt.Sprintf(`{"prompt":"1","ignore_eos":true,"max_tokens":500,"stream":%t}`, i%2 == 0)
			resp, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				answers[i] = err.Error()
				return
			}
			defer resp.Body.Close()
			in := bufio.NewReader(resp.Body)
			first, _ := in.ReadString('\n')
			if i == 0 {
				begun.Done()
			}
			rest, err := io.ReadAll(in)
			answers[i] = fmt.Sprint(resp.StatusCode, " ", first, string(rest), err)
		})
	}
	require.Eventually(t, func() bool {
		_, page := p.get(t, "/metrics", "")
		return strings.Contains(page, "vllm:request_params_n_count{model_name=\"tiny\",engine=\"0\"} 24\n")
	}, time.Minute, time.Millisecond)
	p.signals <- syscall.SIGTERM
	code := <-p.code
	all.Wait()
	cut := 0
	for i, answer := range answers {
		switch {
		case strings.HasPrefix(answer, "200") && strings.Contains(answer, `"finish_reason":"length"`):
			continue
		case i%2 == 0:
			require.True(t, strings.HasPrefix(answer, "200 ") && strings.Contains(answer, `"code":"shutting_down"`) && strings.HasSuffix(answer, "data: [DONE]\n\n<nil>"), "%s", answer)
		default:
			require.True(t, strings.HasPrefix(answer, "503 ") && strings.Contains(answer, `"code":"shutting_down"`), "%s", answer)
		}
		cut++
	}
	require.Positive(t, cut)
	require.Equal(t, exitFailed, code)
	require.Contains(t, p.errs.String(), "requests were still under way")
	require.NotRegexp(t, `POST \S+ 499 `, p.errs.String())
}
