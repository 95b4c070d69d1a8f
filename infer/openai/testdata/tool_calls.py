"""The official client against a server whose model calls add(a=12) twice behind a word; argument: the URL."""
import json
import sys

from openai import OpenAI

client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
request = json.loads(sys.argv[2])
extra = {name: request.pop(name) for name in ("repetition_penalty", "stop_token_ids")}

whole = client.chat.completions.create(extra_body=extra, **request).choices[0]
assert whole.finish_reason == "tool_calls", whole
assert whole.message.content == "Well", whole
calls = whole.message.tool_calls
assert [(c.type, c.function.name, json.loads(c.function.arguments)) for c in calls] == [("function", "add", {"a": 12})] * 2, calls
assert calls[0].id != calls[1].id

content, names, arguments, ids, finish = "", {}, {}, {}, None
for chunk in client.chat.completions.create(stream=True, extra_body=extra, **request):
    choice = chunk.choices[0]
    content += choice.delta.content or ""
    finish = choice.finish_reason or finish
    for call in choice.delta.tool_calls or []:
        ids.setdefault(call.index, call.id)
        names.setdefault(call.index, call.function.name)
        arguments[call.index] = arguments.get(call.index, "") + call.function.arguments
assert (content, finish) == ("Well", "tool_calls"), (content, finish)
assert names == {0: "add", 1: "add"} and len(set(ids.values())) == 2
assert {i: json.loads(a) for i, a in arguments.items()} == {0: {"a": 12}, 1: {"a": 12}}

# The helper that puts the pieces of a stream together agrees.
with client.chat.completions.stream(extra_body=extra, **request) as stream:
    final = stream.get_final_completion().choices[0]
assert final.finish_reason == "tool_calls" and len(final.message.tool_calls) == 2, final

# The calls go back with what the tools said.
request["messages"] += [whole.message.model_dump(exclude_none=True)] + [
    {"role": "tool", "tool_call_id": c.id, "content": "19"} for c in calls]
client.chat.completions.create(extra_body=extra, **request)
print("ok")
