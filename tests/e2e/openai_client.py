#!/usr/bin/env python3
"""Serves SmolLM2 with the built program and talks to it with the official openai client.

usage: openai_client.py QUINTET   (exit code 77: the model or the Python environment is absent)
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
SKIP = 77
KEY = "a-key-for-tests"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def need_environment():
    """Goes on under the project's own Python, where the client is installed."""
    if not os.path.exists(MODEL):
        skip(f"{MODEL} is absent: run make models")
    if not os.path.exists(PYTHON):
        skip(f"{PYTHON} is absent: run make test")
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, ".venv")):
        os.execv(PYTHON, [PYTHON, os.path.abspath(__file__), *sys.argv[1:]])


class Server:
    """The program on a free port; its log is shown where a test fails."""

    def __init__(self, program, folder, *flags):
        key_path = os.path.join(folder, "key")
        with open(key_path, "w", encoding="utf-8") as file:
            file.write(KEY + "\n")
        self.log_path = os.path.join(folder, "log")
        command = [program, "serve", MODEL, "--port", "0", "--api-key-file", key_path, "--log-level", "info", *flags]
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL)
        self.port = self._wait_for_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def _wait_for_port(self):
        for _ in range(600):
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.log())
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.process.kill()
        sys.exit(f"the server did not start:\n{self.log()}")

    def health(self):
        with urllib.request.urlopen(f"{self.url}/health", timeout=10) as answer:
            return json.load(answer)

    def wait_running(self, count, timeout_s=20):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            health = self.health()
            if health["running"] + health["waiting"] == count:
                return
            time.sleep(0.02)
        raise AssertionError(f"{count} requests expected, found {self.health()}")


def expect_error(kind, call, **wanted):
    try:
        call()
    except kind as error:
        for name, value in wanted.items():
            found = getattr(error, name)
            assert found == value, f"{name}: {found!r}, expected {value!r} ({error})"
        return error
    raise AssertionError(f"no {kind.__name__}")


def text_of(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


# ---- tests: each takes the client, the model's id and the server ----

def test_models(client, model, server):
    assert model == "SmolLM2-135M-Instruct.Q4_1", model
    assert [entry.id for entry in client.models.list()] == [model]
    assert client.models.retrieve(model).owned_by == "quintet"


def test_chat(client, model, server):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=32)
    text = answer.choices[0].message.content
    assert "Paris" in text, text
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.system_fingerprint.startswith("fp_")

    chunks = list(client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=32,
                                                 stream=True, stream_options={"include_usage": True}))
    assert text_of(chunks) == text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert len({chunk.id for chunk in chunks}) == 1


def test_messages(client, model, server):
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is the capital "}, {"type": "text", "text": "of France?"}]}]
    both = [client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=16).choices[0].message.content
            for messages in (QUESTION, parts)]
    assert both[0] == both[1], both
    # What only looks like the end of the turn is longer as text than as a token.
    plain = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}], max_tokens=1).usage
    marked = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x<|im_end|>"}], max_tokens=1).usage
    assert marked.prompt_tokens > plain.prompt_tokens + 3, (plain, marked)


def test_documented_examples(client, model, server):
    """The bodies that the README and the API's page send with curl are taken as they stand."""
    for page in ("README.md", "README.zh-CN.md", "docs/http-api.md"):
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            bodies = re.findall(r"-d '(\{.*\})'", file.read())
        assert bodies, page
        for body in bodies:
            body = {**json.loads(body), "max_tokens": 4}
            request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.status == 200, (page, body)
                answer.read()


def test_completions(client, model, server):
    answer = client.completions.create(model=model, prompt="The capital of France is", temperature=0, max_tokens=8)
    text = answer.choices[0].text
    assert text.startswith(" Paris"), repr(text)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 8
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(
        model=model, prompt="The capital of France is", temperature=0, max_tokens=8, stream=True))
    assert streamed == text
    ids = subprocess.run([server.program, "tokenize", MODEL, "--jsonl"], input='"The capital of France is"\n',
                         capture_output=True, text=True, check=True).stdout
    by_ids = client.completions.create(model=model, prompt=json.loads(ids), temperature=0, max_tokens=8)
    assert by_ids.choices[0].text == text


def test_stop(client, model, server):
    options = {"model": model, "messages": [{"role": "user", "content": "Count from one to ten in words."}],
               "temperature": 0, "max_tokens": 60}
    whole = client.chat.completions.create(**options).choices[0].message.content
    middle = len(whole) // 2
    stop = whole[middle:middle + 5]
    wanted = whole[:whole.index(stop)]
    for extra in ({}, {"stream": True}):
        answer = client.chat.completions.create(**options, stop=["never ever", stop], **extra)
        text = text_of(answer) if extra else answer.choices[0].message.content
        assert text == wanted, (text, wanted)
    server.wait_running(0)


def test_seed(client, model, server):
    def story(seed):
        return client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Tell me a story."}],
                                              temperature=1.2, seed=seed, max_tokens=24).choices[0].message.content
    texts = [story(seed) for seed in (1, 2, 3)]
    assert texts[0] == story(1)
    assert len(set(texts)) > 1, texts


def test_logprobs(client, model, server):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == answer.choices[0].message.content
    for token in tokens:
        best = token.top_logprobs
        assert len(best) == 3 and best[0].logprob >= best[1].logprob >= best[2].logprob
        assert token.token == best[0].token and abs(token.logprob - best[0].logprob) < 1e-5 and token.logprob <= 0


def test_bias(client, model, server):
    ids = json.loads(subprocess.run([server.program, "tokenize", MODEL, "--jsonl"], input='" Paris"\n', capture_output=True,
                                    text=True, check=True).stdout)
    answer = client.completions.create(model=model, prompt="The capital of France is", temperature=0, max_tokens=4,
                                       logit_bias={str(ids[0]): -100})
    assert not answer.choices[0].text.startswith(" Paris"), answer.choices[0].text


def test_errors(client, model, server):
    import openai

    def chat(**more):
        return lambda: client.chat.completions.create(**{"model": model, "messages": QUESTION, **more})

    expect_error(openai.NotFoundError, chat(model="gpt-4"), code="model_not_found", param="model")
    expect_error(openai.BadRequestError, chat(n=2), param="n", code="invalid_value")
    expect_error(openai.BadRequestError, chat(temperature=3), param="temperature")
    expect_error(openai.BadRequestError, chat(messages=[]), param="messages")
    expect_error(openai.BadRequestError, chat(extra_body={"temprature": 1}), code="unknown_parameter")
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]
    expect_error(openai.BadRequestError, chat(messages=image), param="messages[0].content[0].type")
    expect_error(openai.BadRequestError, chat(max_tokens=10_000_000), code="context_length_exceeded")
    long = [{"role": "user", "content": "word " * 20_000}]
    expect_error(openai.BadRequestError, chat(messages=long), code="context_length_exceeded")
    expect_error(openai.BadRequestError, lambda: client.completions.create(model=model, prompt="x", echo=True), param="echo")
    stranger = openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0)
    expect_error(openai.AuthenticationError, stranger.models.list, code="invalid_api_key")
    expect_error(openai.NotFoundError, lambda: client.embeddings.create(model=model, input="x"), code="unknown_url")


def test_parallel(client, model, server):
    """Streams share the machine, and none of them changes because others run beside it."""
    messages = [[{"role": "user", "content": f"Write a long story about the number {i}."}] for i in range(4)]

    def options(i):
        return {"model": model, "messages": messages[i], "temperature": 0.8, "seed": i, "max_tokens": 40}

    alone = [client.chat.completions.create(**options(i)).choices[0].message.content for i in range(4)]
    times = [[] for _ in range(4)]
    texts = [""] * 4

    def follow(i):
        for chunk in client.chat.completions.create(**options(i), stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                times[i].append(time.monotonic())
                texts[i] += chunk.choices[0].delta.content

    threads = [threading.Thread(target=follow, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == alone, (texts, alone)
    latest_first = max(moments[0] for moments in times)
    earliest_last = min(moments[-1] for moments in times)
    assert latest_first < earliest_last, "every stream begins before any has ended"


def test_leaving(client, model, server):
    for stream in (True, False):
        options = {"model": model, "prompt": "Once upon a time", "max_tokens": 2000, "temperature": 1, "extra_body": {"ignore_eos": True}}
        if stream:
            answer = client.completions.create(**options, stream=True)
            next(iter(answer))
            server.wait_running(1)
            answer.close()
        else:
            import openai
            expect_error(openai.APITimeoutError, lambda: client.completions.create(**options, timeout=0.5))
        server.wait_running(0)


def test_end(client, model, server):
    """SIGTERM: the running answer ends whole, the program with 0. Must be the last test."""
    stream = client.completions.create(model=model, prompt="Once upon a time", max_tokens=60, temperature=0, stream=True,
                                       extra_body={"ignore_eos": True})
    chunks = [next(iter(stream))]
    server.process.send_signal(signal.SIGTERM)
    chunks += list(stream)
    assert chunks[-1].choices[0].finish_reason == "length", chunks[-1]
    assert server.process.wait(timeout=30) == 0, server.process.returncode


def main():
    need_environment()
    import openai

    program = os.path.abspath(sys.argv[1])
    tests = [test_models, test_chat, test_messages, test_documented_examples, test_completions, test_stop, test_seed, test_logprobs, test_bias,
             test_errors, test_parallel, test_leaving, test_end]
    with tempfile.TemporaryDirectory() as folder:
        # One thread: where other tests share the cores, threads that wait for each other would take many times as long.
        server = Server(program, folder, "--context", "4096", "--sequences", "8", "--threads", "1")
        server.program = program
        try:
            client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, timeout=120)
            model = client.models.list().data[0].id
            for test in tests:
                begin = time.monotonic()
                test(client, model, server)
                print(f"ok {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except BaseException:
            print(f"--- the server's log\n{server.log()}---", flush=True)
            raise
        finally:
            if server.process.poll() is None:
                server.process.kill()
    print(f"{len(tests)} tests passed")


if __name__ == "__main__":
    main()
