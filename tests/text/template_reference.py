"""The reference of the template tests: Python's jinja2, set up as Transformers sets it up, and our engine beside it."""

import datetime
import json
import subprocess
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("no jinja2 for this Python: run `make test`, which makes .venv")
    sys.exit(77)

NOW = 1764547200  # 2025-12-01 00:00:00 UTC, what strftime_now() says in both


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what the assistant said; here it only renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    @staticmethod
    def _render(caller):
        return caller()


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    """Refuses attributes that start with an underscore."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            TemplateNamespace._check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        TemplateNamespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"underscore attribute {name!r}")


def make_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)
        return now.strftime(format)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals["dict"] = TemplateDict()
    environment.globals["namespace"] = TemplateNamespace
    return environment


class Reference:
    """Renders cases with jinja2; a compiled template serves all cases that use it in a row."""

    def __init__(self):
        self.environment = make_environment()
        self.source = None

    def render(self, case):
        """{"text"} or {"error"}, as our program answers."""
        try:
            if case["template"] != self.source:
                self.source = None
                self.compiled = self.environment.from_string(case["template"])
                self.source = case["template"]
            variables = {"add_generation_prompt": case.get("add_generation_prompt", False), "documents": None}
            for token in ("bos_token", "eos_token"):
                if case.get(token):
                    variables[token] = case[token]
            variables["messages"] = json.loads(case.get("messages", "[]"))
            variables["tools"] = json.loads(case["tools"]) if case.get("tools") else None
            variables.update(json.loads(case["extra"]) if case.get("extra") else {})
            return {"text": self.compiled.render(**variables)}
        except Exception as error:  # whatever a template can raise counts as refused
            return {"error": f"{type(error).__name__}: {error}"}


def render_ours(program, cases):
    """The answers of our engine to all cases, in order; fails with the case that it died on."""
    lines = "".join(json.dumps({"now": NOW, **case}) + "\n" for case in cases)
    done = subprocess.run([program], input=lines, capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    if done.returncode != 0 or len(answers) != len(cases):
        case = cases[min(len(answers), len(cases) - 1)]
        raise SystemExit(f"{program} ended with {done.returncode} on {str(case)[-1500:]}\n{done.stderr[-2000:]}")
    return answers
