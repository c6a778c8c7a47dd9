#!/usr/bin/env python3
"""Quintet's cpu backend beside llama.cpp (llama-cpp-python 0.3.36, built natively) on the same file, alternating in one
run: prompt and decode speed, time to first token, peak memory, and the KL of both to the reference forward pass.

usage: vs_llama_cpp.py [MODEL] [--runs 5] [--threads 2] [--text FILE] [--no-kl] [--json FILE]

The first use builds the peer into .cache/llama-venv (about six minutes). The reference logits (double accumulation over
the same file's weights) take a few minutes and are kept under .cache/.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER_PYTHON = os.path.join(ROOT, ".cache", "llama-venv", "bin", "python")
PEER = os.path.join(ROOT, "bench", "llama_cpp_peer.py")
QUINTET = os.path.join(ROOT, "build", "release", "quintet")
DEFAULT_MODEL = os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
DEFAULT_TEXT = os.path.join(ROOT, "..", "shared", "data", "wikitext-2", "wiki.test.raw")
WINDOWS, WINDOW_TOKENS = 4, 512


def ensure_peer():
    if os.path.exists(PEER_PYTHON):
        return
    print("==> build llama-cpp-python 0.3.36 natively (about six minutes)", flush=True)
    folder = os.path.join(ROOT, ".cache", "llama-venv")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([PEER_PYTHON, "-m", "pip", "install", "--quiet", "llama-cpp-python==0.3.36", "numpy", "gguf"], check=True,
                   env=dict(os.environ, CMAKE_ARGS="-DGGML_NATIVE=ON", CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count())))


def run_json(command, stdin=""):
    result = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr[-2000:]}")
    return json.loads(result.stdout)


def quintet_speed(model, prompt, decode, threads):
    return run_json([QUINTET, "bench", model, "--device", "cpu", "--prompt", str(prompt), "--decode", str(decode),
                     "--threads", str(threads), "--json", "--no-ceilings", "--repetitions", "1"])


def peer(verb, model, *arguments, stdin=""):
    return run_json([PEER_PYTHON, PEER, verb, model, *map(str, arguments)], stdin)


def tokenize(model, text):
    out = subprocess.run([QUINTET, "tokenize", model, "--jsonl"], input=json.dumps(text) + "\n", capture_output=True,
                         text=True, check=True)
    return json.loads(out.stdout.splitlines()[0])


def detokenize(model, ids):
    out = subprocess.run([QUINTET, "tokenize", model, "--jsonl", "--decode"], input=json.dumps(ids) + "\n",
                         capture_output=True, text=True, check=True)
    return json.loads(out.stdout.splitlines()[0])


def quintet_logits(model, device, threads, text, path):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        run_json([QUINTET, "run", model, "--device", device, "--threads", str(threads), "--raw", "-f", file.name, "-n",
                  "1", "--json", "--dump-logits", path])


def kl_rows(numpy, reference, other):
    """KL(reference || other) of each row, and whether the most likely token is the same."""
    def log_softmax(x):
        x = x.astype(numpy.float64)
        x = x - x.max(axis=1, keepdims=True)
        return x - numpy.log(numpy.exp(x).sum(axis=1, keepdims=True))
    p, q = log_softmax(reference), log_softmax(other)
    return (numpy.exp(p) * (p - q)).sum(axis=1), p.argmax(axis=1) == q.argmax(axis=1)


def measure_kl(model, threads, text_path):
    """Run inside the peer's environment for numpy: see main()."""
    import numpy
    with open(text_path, encoding="utf-8") as file:
        ids = tokenize(model, file.read(60000))
    key = hashlib.sha256(open(model, "rb").read()).hexdigest()[:16]
    cache = os.path.join(ROOT, ".cache", "reference-logits")
    os.makedirs(cache, exist_ok=True)
    rows = {"quintet": [], "llama.cpp": []}
    same = {"quintet": [], "llama.cpp": []}
    tokens = 0
    for window in range(WINDOWS):
        # Cut by tokens, then by what the text of the cut encodes to, so that every engine gets the same ids.
        text = detokenize(model, ids[window * WINDOW_TOKENS:(window + 1) * WINDOW_TOKENS])
        own = tokenize(model, text)
        tokens += len(own)
        reference = os.path.join(cache, f"{key}-{window}-{len(own)}.npy")
        if not os.path.exists(reference):
            quintet_logits(model, "reference", threads, text, reference + ".part.npy")
            os.replace(reference + ".part.npy", reference)
        want = numpy.load(reference, mmap_mode="r")
        with tempfile.TemporaryDirectory() as folder:
            for name in rows:
                path = os.path.join(folder, "logits.npy")
                if name == "quintet":
                    quintet_logits(model, "cpu", threads, text, path)
                else:
                    peer("logits", model, threads, path, stdin=json.dumps(own))
                got = numpy.load(path, mmap_mode="r")
                for begin in range(0, len(want), 64):
                    kl, top = kl_rows(numpy, want[begin:begin + 64], got[begin:begin + 64])
                    rows[name] += kl.tolist()
                    same[name] += top.tolist()
    return {name: {"kl_mean": statistics.fmean(rows[name]), "kl_max": max(rows[name]),
                   "same_top1": statistics.fmean(map(float, same[name])), "tokens": tokens} for name in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--text", default=DEFAULT_TEXT)
    parser.add_argument("--no-kl", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    ensure_peer()
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(PEER_PYTHON))):
        # numpy comes with the peer's environment; the system's Python need not have it.
        os.execv(PEER_PYTHON, [PEER_PYTHON, *sys.argv])

    model = options.model
    best = {t: peer("speed", model, 128, 32, t, 0)["decode_tokens_per_s"] for t in range(1, options.threads + 1)}
    peer_threads = max(best, key=best.get)
    ours, theirs = [], []
    for run in range(options.runs):
        ours.append(quintet_speed(model, options.prompt, options.decode, options.threads))
        theirs.append(peer("speed", model, options.prompt, options.decode, peer_threads, run))

    def median(results, key):
        return statistics.median(result[key] for result in results)

    words = " ".join(["The quick brown fox jumps over the lazy dog and runs away."] * 4)
    ids = tokenize(model, words)[:32]
    text = detokenize(model, ids)
    first_ours, first_theirs = [], []
    for _ in range(options.runs):
        first_ours.append(first_token_s([QUINTET, "run", model, "--device", "cpu", "--threads", str(options.threads), "--raw", "-p", text,
                                         "-n", "1", "--temp", "0"]))
        first_theirs.append(peer("first", model, peer_threads, stdin=json.dumps(ids))["first_token_s"])

    report = {
        "model": os.path.basename(model), "threads": options.threads, "peer_threads": peer_threads,
        "peer_system": theirs[0]["system"],
        "prompt_tokens_per_s": [median(ours, "prompt_tokens_per_s"), median(theirs, "prompt_tokens_per_s")],
        "decode_tokens_per_s": [median(ours, "decode_tokens_per_s"), median(theirs, "decode_tokens_per_s")],
        "first_token_s": [statistics.median(first_ours), statistics.median(first_theirs)],
        "peak_rss_bytes": [median(ours, "peak_rss_bytes"), median(theirs, "peak_rss_bytes")],
        "file_bytes": os.path.getsize(model), "kv_bytes": ours[0]["kv_bytes"],
    }
    if not options.no_kl:
        report["kl"] = measure_kl(model, options.threads, options.text)

    print(f"{report['model']}, prompt {options.prompt}, decode {options.decode}, {options.threads} threads "
          f"(llama.cpp's best: {peer_threads}), median of {options.runs} alternating runs")
    print(f"{'':24}{'quintet':>12}{'llama.cpp':>12}{'ratio':>8}")
    for key, name in (("prompt_tokens_per_s", "prompt tokens/s"), ("decode_tokens_per_s", "decode tokens/s"),
                      ("first_token_s", "first token, s")):
        a, b = report[key]
        print(f"{name:24}{a:12.3f}{b:12.3f}{a / b:8.2f}")
    a, b = report["peak_rss_bytes"]
    print(f"{'peak memory, MB':24}{a / 1e6:12.1f}{b / 1e6:12.1f}{a / b:8.2f}"
          f"   (file {report['file_bytes'] / 1e6:.1f} + KV {report['kv_bytes'] / 1e6:.1f} + "
          f"{(a - report['file_bytes'] - report['kv_bytes']) / 1e6:.1f})")
    if "kl" in report:
        for key, name in (("kl_mean", "mean KL"), ("kl_max", "max KL"), ("same_top1", "same top-1")):
            a, b = report["kl"]["quintet"][key], report["kl"]["llama.cpp"][key]
            print(f"{name:24}{a:12.6f}{b:12.6f}")
    print(f"llama.cpp: {report['peer_system']}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)


def first_token_s(command):
    """Start of the process to the first byte of its answer."""
    import time
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.read(1)
    elapsed = time.perf_counter() - start
    process.stdout.read()
    if process.wait():
        sys.exit(f"{' '.join(command)}: exit {process.returncode}")
    return elapsed


if __name__ == "__main__":
    main()
