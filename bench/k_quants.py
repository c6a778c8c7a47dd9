#!/usr/bin/env python3
"""GGUF mixes that quintet makes beside those that llama.cpp makes of the same file: KL from the uncompressed model, bytes,
seconds, and of those of all processors together. Neither has importance data, or both have the same.

    bench/k_quants.py [MODEL] [--mix q4_k_m ...] [--imatrix FILE] [--tokens N] [--threads N] [--text FILE]

MODEL is an F16 or F32 GGUF file (tools/make_teachers.py makes some). Prints a Markdown table. llama.cpp's side runs in the
environment of bench/vs_llama_cpp.py.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from vs_llama_cpp import DEFAULT_TEXT, QUINTET, ROOT, ensure_peer, peer

DEFAULT_MODEL = os.path.join(ROOT, "models", "teachers", "smollm2-135m-noise-f16.gguf")
FILE_TYPES = {"q2_k": 10, "q3_k_s": 11, "q3_k_m": 12, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18, "q8_0": 7,
              "iq4_nl": 25, "iq4_xs": 30}


def children_cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--mix", nargs="+", choices=FILE_TYPES, default=["q4_k_m"])
    parser.add_argument("--imatrix", help="importance matrix (quintet quantize --save-imatrix) for both")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--text", default=DEFAULT_TEXT)
    parser.add_argument("--program", default=QUINTET)
    parser.add_argument("--reference-cache", help="keep the uncompressed model's probabilities in this file")
    args = parser.parse_args()
    ensure_peer()
    print("| mix | made by | bytes | seconds | CPU seconds | KL (95 %) | same top-1 |\n|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="quintet-k-quants-") as work:
        cache = args.reference_cache or os.path.join(work, "reference.logp")
        for mix in args.mix:
            for maker in ("quintet", "llama.cpp"):
                out = os.path.join(work, f"{mix}-{maker}.gguf")
                start, cpu_start = time.perf_counter(), children_cpu_seconds()
                if maker == "quintet":
                    subprocess.run([args.program, "quantize", args.model, out, "--method", mix, "--no-smoke", "--threads",
                                    str(args.threads), *(["--imatrix", args.imatrix] if args.imatrix else [])],
                                   check=True, stdout=subprocess.DEVNULL)
                    seconds, cpu_seconds = time.perf_counter() - start, children_cpu_seconds() - cpu_start
                else:
                    took = peer("quantize", args.model, out, FILE_TYPES[mix], args.threads, *([args.imatrix] if args.imatrix else []))
                    seconds, cpu_seconds = took["seconds"], took["cpu_seconds"]
                done = subprocess.run([args.program, "eval", out, "--kl", args.model, args.text, "--tokens", str(args.tokens), "--json",
                                       "--reference-cache", cache, "--threads", str(args.threads)],
                                      check=True, stdout=subprocess.PIPE, text=True)
                r = json.loads(done.stdout)
                print(f"| {mix} | {maker} | {os.path.getsize(out) / 1e6:.1f} MB | {seconds:.1f} | {cpu_seconds:.1f} "
                      f"| {r['kl_mean']:.5f} ({r['kl_ci'][0]:.5f}-{r['kl_ci'][1]:.5f}) | {100 * r['top1']:.1f} % |", flush=True)
                os.remove(out)


if __name__ == "__main__":
    main()
