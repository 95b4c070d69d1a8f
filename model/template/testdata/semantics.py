"""Makes semantics.json: what Jinja2 renders for the cases of semantics.txt.

    pip install jinja2==3.1.6 && python semantics.py

Cases are separated by lines of one section sign. The environment is that of the transformers library.
"""
import json
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


NOW = datetime(2025, 3, 4, 15, 6, 7)
VARS = {
    "s": "Hello, World", "u": "Grüße ß 漢字", "n": 7, "f": 2.5, "neg": -3, "t": True, "z": None,
    "l": [3, 1, 2], "words": ["b", "A", "c"],
    "d": {"b": 1, "a": [1, 2.0, None, True], "items": "shadow", "x y": "q'uote"},
    "msgs": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo", "n": 2},
             {"role": "user", "content": "bye"}],
    "e": "", "el": [], "ed": {},
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
}

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = NOW.strftime

cases = []
for source in open("semantics.txt", encoding="utf-8", newline="").read().split("\n§\n"):
    case = {"source": source}
    try:
        case["output"] = env.from_string(source).render(**VARS)
    except Exception as error:
        case["error"] = type(error).__name__ + ": " + str(error)
    cases.append(case)
with open("semantics.json", "w", encoding="utf-8") as out:
    json.dump({"vars": VARS, "now": NOW.isoformat(), "cases": cases}, out, ensure_ascii=False, indent=1)
