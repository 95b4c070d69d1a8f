"""The official OpenAI client against a running `serve`: models, completion, chat, stream, log-probs.

    pip install openai
    go run ./cmd/serve --model tiny --port 8000 &
    python3 examples/openai_client.py http://127.0.0.1:8000/v1

Every answer is checked; the exit code says whether all of them held.
"""
import math
import os
import sys

from openai import BadRequestError, NotFoundError, OpenAI

base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
client = OpenAI(base_url=base, api_key=os.environ.get("GRAFT_API_KEY", "none"), max_retries=0)

models = [m.id for m in client.models.list()]
print("models:     ", ", ".join(models))
model = models[0]

text = client.completions.create(model=model, prompt="2+2=", max_tokens=8, temperature=0)
print("completion: ", repr(text.choices[0].text), text.choices[0].finish_reason)
assert text.usage.completion_tokens <= 8

question = [{"role": "user", "content": "37+58="}]
chat = client.chat.completions.create(
    model=model, messages=question, max_tokens=16, temperature=0, logprobs=True, top_logprobs=2)
choice = chat.choices[0]
print("chat:       ", repr(choice.message.content), choice.finish_reason)
for token in choice.logprobs.content:
    print("             %-8r p=%.4f" % (token.token, math.exp(token.logprob)))
    assert len(token.top_logprobs) == 2

# A stream gives the same text, in pieces that never cut a character.
pieces, usage = [], None
for chunk in client.chat.completions.create(
        model=model, messages=question, max_tokens=16, temperature=0,
        stream=True, stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    if chunk.choices and chunk.choices[0].delta.content:
        pieces.append(chunk.choices[0].delta.content)
print("stream:     ", pieces)
assert "".join(pieces) == choice.message.content
assert usage.completion_tokens == chat.usage.completion_tokens

# The same seed draws the same tokens, and siblings of a request differ.
drawn = [client.chat.completions.create(model=model, messages=question, max_tokens=16, n=4, seed=7) for _ in range(2)]
texts = [[c.message.content for c in d.choices] for d in drawn]
print("drawn:      ", texts[0])
assert texts[0] == texts[1]

for what, call, error in [
    ("unknown model", lambda: client.completions.create(model="nobody", prompt="x"), NotFoundError),
    ("temperature", lambda: client.completions.create(model=model, prompt="x", temperature=9), BadRequestError),
]:
    try:
        call()
    except error as e:
        print("refused:    ", e.message)
    else:
        sys.exit("%s was not refused" % what)
print("ok")
