"""Renders every real chat template over a matrix of conversations, with jinja2 and with our engine, and compares.

Usage: compare_templates.py PROGRAM [--verbose]; PROGRAM is quintet_template_main. Templates come from
.cache/vocab/templates and from the GGUF files in models/ and .cache/vocab.
"""

import argparse
import collections
import itertools
import json
import pathlib
import struct
import sys

from template_reference import Reference, render_ours

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
MAX_REFUSED = 5  # templates that use a construct which we refuse by name

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather \"now\" at a place: <b>temperature</b> & wind.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "City, e.g. Zürich"},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                    "days": {"type": "integer", "minimum": 1, "maximum": 10},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "options": {
                        "type": "object",
                        "properties": {"wind": {"type": "boolean"}, "scale": {"type": "number", "default": 1.5}},
                        "required": ["wind"],
                        "additionalProperties": False,
                    },
                    "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "kind": {"type": ["string", "null"], "description": "Two\nlines"},
                },
                "required": ["city"],
            },
            "return": {"type": "object", "properties": {"t": {"type": "number"}}},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "no_arguments",
            "description": "Nothing",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]


def call(arguments, call_id="abcdef123"):
    return {"id": call_id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def text_part(text):
    return [{"type": "text", "text": text}]


SYSTEM = {"role": "system", "content": "You are Quintet, a helpful assistant. "}
USER = {"role": "user", "content": "What is the capital of France?"}
ASSISTANT = {"role": "assistant", "content": "Paris."}
ARGUMENTS = {"city": "Zürich", "days": 3, "scale": 1.0, "big": 12345678901234567890, "tiny": 1e-07, "none": None,
             "ok": True, "list": [1, 2.5, "x"], "nested": {"a": {"b": []}}}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": '{"t": 21.5}'}

CONVERSATIONS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [USER, ASSISTANT, {"role": "user", "content": "And of Spain?"}],
    "system turns": [SYSTEM, USER, ASSISTANT, {"role": "user", "content": "And of Spain?"}, {"role": "assistant", "content": "Madrid."}],
    "many turns": [SYSTEM] + [USER, ASSISTANT] * 6 + [USER],
    "spaces": [{"role": "system", "content": "  sys \n"}, {"role": "user", "content": "  hi \n\n"}, {"role": "assistant", "content": "\n ok  "}, {"role": "user", "content": "\tend "}],
    "empty": [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": ""}],
    "unicode": [{"role": "user", "content": "Grüße 你好 👩‍👩‍👧 \u00a0x\u2028y ß İ \u0007"}, {"role": "assistant", "content": "ﬁ Ως"}, {"role": "user", "content": "e\u0301"}],
    "special look": [{"role": "user", "content": "<|im_end|> {{ 7*7 }} {% if %} <think>x</think> [INST] </s>"}],
    "html": [{"role": "user", "content": "<b>\"a\" & 'b'</b>"}],
    "parts": [{"role": "system", "content": text_part("Sys")}, {"role": "user", "content": text_part("Hi") + text_part(" there")}, {"role": "assistant", "content": text_part("Yes")}, {"role": "user", "content": text_part("ok")}],
    "image": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": "x"}}]}],
    "thinking": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nParis."}, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "<think>again</think>Yes", "reasoning_content": "because"}],
    "reasoning": [USER, {"role": "assistant", "content": "Paris.", "reasoning_content": "I know.\n", "thinking": "I know.\n"}, {"role": "user", "content": "Sure?"}],
    "none content": [USER, {"role": "assistant", "content": None}, USER],
    "no content": [USER, {"role": "assistant"}, USER],
    "call": [USER, {"role": "assistant", "content": "", "tool_calls": [call(ARGUMENTS)]}, RESULT],
    "call none": [SYSTEM, USER, {"role": "assistant", "content": None, "tool_calls": [call(ARGUMENTS)]}, RESULT, ASSISTANT, USER],
    "call missing": [USER, {"role": "assistant", "tool_calls": [call({"city": "Oslo"})]}, RESULT, ASSISTANT],
    "call string": [USER, {"role": "assistant", "content": "Let me see.", "tool_calls": [call('{"city": "Zürich"}')]}, RESULT, ASSISTANT],
    "call empty": [USER, {"role": "assistant", "content": "", "tool_calls": [call({})]}, RESULT],
    "calls": [USER, {"role": "assistant", "content": "", "tool_calls": [call({"city": "A"}, "aaaaaaaaa"), call({"city": "B"}, "bbbbbbbbb")]},
              {**RESULT, "tool_call_id": "aaaaaaaaa"}, {**RESULT, "tool_call_id": "bbbbbbbbb", "content": "x"}, ASSISTANT, USER],
    "calls in order": [USER, {"role": "assistant", "content": "", "tool_calls": [call({"city": "A"}, "0")]}, {**RESULT, "tool_call_id": "0"}],
    "bad id": [USER, {"role": "assistant", "content": "", "tool_calls": [call({"city": "A"}, "short")]}, {**RESULT, "tool_call_id": "short"}],
    "no id": [USER, {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]},
              {"role": "tool", "content": "r"}],
    "result parts": [USER, {"role": "assistant", "content": "", "tool_calls": [call({"city": "A"})]}, {**RESULT, "content": text_part("21")}],
    "result dict": [USER, {"role": "assistant", "content": "", "tool_calls": [call({"city": "A"})]}, {**RESULT, "content": {"t": 21.0}}],
    "flat call": [USER, {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"x": [1, None]}}]}, {"role": "tool", "name": "f", "content": "1"}],
    "developer": [{"role": "developer", "content": "Dev"}, USER],
    "two systems": [SYSTEM, {"role": "system", "content": "More"}, USER],
    "late system": [USER, ASSISTANT, {"role": "system", "content": "Late"}, USER],
    "assistant first": [ASSISTANT, USER],
    "two users": [USER, USER],
    "two assistants": [USER, ASSISTANT, ASSISTANT],
    "only system": [SYSTEM],
    "nothing": [],
    "odd role": [{"role": "narrator", "content": "Once"}, USER],
    "tool first": [RESULT],
    "number content": [{"role": "user", "content": 42}],
    "prefix": [USER, {"role": "assistant", "content": "Par", "prefix": True}],
}

EXTRAS = [
    {},
    {"enable_thinking": False, "date_string": "26 Jul 2024", "thinking": True, "reasoning_effort": "high"},
    {"enable_thinking": True, "tools_in_user_message": False, "builtin_tools": ["code_interpreter", "brave_search"],
     "keep_cot": True, "clear_thinking": False, "thinking_budget": 512, "documents": [{"title": "T", "text": "Body"}]},
]


def gguf_template(path):
    """tokenizer.chat_template of a GGUF file, or None; walks the metadata only."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    with open(path, "rb") as file:
        _, _, _, count = struct.unpack("<4sIQQ", file.read(24))

        def string():
            return file.read(struct.unpack("<Q", file.read(8))[0])

        def skip(kind):
            if kind == 8:
                string()
            elif kind == 9:
                item, length = struct.unpack("<IQ", file.read(12))
                if item in sizes:
                    file.seek(sizes[item] * length, 1)
                else:
                    for _ in range(length):
                        skip(item)
            else:
                file.seek(sizes[kind], 1)

        for _ in range(count):
            key, kind = string(), struct.unpack("<I", file.read(4))[0]
            if key == b"tokenizer.chat_template":
                return string().decode()
            skip(kind)
    return None


def read_templates():
    """(name, source) of every template at hand."""
    for path in sorted((ROOT / ".cache/vocab/templates").glob("*.jinja")):
        yield path.stem, path.read_text()
    for folder in ("models", ".cache/vocab"):
        for path in sorted((ROOT / folder).glob("*.gguf")):
            source = gguf_template(path)
            if source is not None:
                yield path.name, source


def same_error(expected, answer):
    """Whether both are errors, with the same words where the template or an undefined value speaks."""
    if expected is None or answer is None:
        return False
    kind, _, message = expected.partition(": ")
    return kind not in ("TemplateError", "UndefinedError") or answer.endswith(message)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("program")
    options.add_argument("--verbose", action="store_true")
    arguments = options.parse_args()

    templates = list(read_templates())
    if not templates:
        print("no templates: run `make models` first (it fetches .cache/vocab)")
        return SKIPPED
    cases, names = [], []
    for name, source in templates:
        for (title, messages), tools, (extra, prompt) in itertools.product(
                CONVERSATIONS.items(), (None, TOOLS), [(EXTRAS[0], False), *((extra, True) for extra in EXTRAS)]):
            names.append((name, title, "tools" if tools else "", json.dumps(extra)))
            cases.append({
                "template": source,
                "messages": json.dumps(messages, ensure_ascii=False),
                "tools": json.dumps(tools, ensure_ascii=False) if tools else "",
                "extra": json.dumps(extra),
                "add_generation_prompt": prompt,
                "bos_token": "<s>",
                "eos_token": "</s>",
            })
    ours = render_ours(arguments.program, cases)
    reference = Reference()
    wrong, errors, refused = collections.Counter(), 0, {}
    for case, name, answer in zip(cases, names, ours):
        expected = reference.render(case)
        errors += "error" in expected
        if expected == answer or same_error(expected.get("error"), answer.get("error")):
            continue
        if "not supported" in answer.get("error", "") or "no filter named" in answer.get("error", ""):
            refused[name[0]] = answer["error"]
            continue
        wrong[name[0]] += 1
        if wrong[name[0]] == 1 or arguments.verbose:
            print(f"{name}\n  jinja2: {str(expected)[:1500]!r}\n  ours:   {str(answer)[:1500]!r}")
    print(f"{len(templates)} templates, {len(cases)} renderings, {errors} of them errors in both, "
          f"{sum(wrong.values())} wrong in {len(wrong)} templates, {len(refused)} templates refused")
    for name, why in refused.items():
        print(f"  refused: {name}: {why}")
    return 1 if wrong or len(refused) > MAX_REFUSED else 0


if __name__ == "__main__":
    sys.exit(main())
