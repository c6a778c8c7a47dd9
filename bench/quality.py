#!/usr/bin/env python3
"""Measures what each method of `quintet quantize` costs, as the tables of docs/quality.md.

    bench/quality.py [--teachers DIR] [--data DIR] [--tokens N] [--teacher a] [--only REGEX] [--results FILE]
                     [--out FILE]

Quantizes every teacher (tools/make_teachers.py) with every row below, then compares all results with the teacher on
WikiText-2 test; calibrates on valid.txt alone. Prints one table a teacher: bits of the compressed weights, KL with its 95 %
interval, KL over that of plain rounding, same top-1, perplexity ratio.
"""
import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEACHERS = {"a": "gemma-3-270m-f16.gguf", "b": "smollm2-135m-noise-f16.gguf", "c": "qwen2.5-coder-0.5b-f16.gguf"}
BASE = "rtn int4 g128"
SHARE = "--outliers 0.1"
ROWS = {
    "rtn int4 tensor": "--method rtn --granularity tensor",
    "rtn int4 channel": "--method rtn --granularity channel",
    BASE: "--method rtn",
    "rtn int4 g64": "--method rtn --group-size 64",
    "rtn int4 g32": "--method rtn --group-size 32",
    "rtn int4 g128 asymmetric": "--method rtn --asymmetric",
    "outlier 0.1 % by magnitude": f"--method outlier --select magnitude {SHARE}",
    "outlier 0.1 % by magnitude, shares by error": "--method outlier --select magnitude --outliers auto=0.1",
    "range search alone": "--method outlier --outliers 0 CALIBRATION",
    "outlier 0.1 % by activation": f"--method outlier {SHARE} CALIBRATION",
    "outlier 0.5 % by activation": "--method outlier --outliers 0.5 CALIBRATION",
    "awq": "--method awq CALIBRATION",
    "awq asymmetric": "--method awq --asymmetric CALIBRATION",
    "gptq": "--method gptq CALIBRATION",
    "gptq, not true-sequential": "--method gptq --no-true-sequential CALIBRATION",
    "gptq + outlier 0.1 %": f"--method gptq+outlier {SHARE} CALIBRATION",
    "gptq int3": "--method gptq --bits 3 CALIBRATION",
    "gptq int3 + outlier 0.1 %": f"--method gptq+outlier --bits 3 {SHARE} CALIBRATION",
    "rtn int8 g128": "--method rtn --bits 8",
    "int8 a scale a row": "--method int8",
    "fp8": "--method fp8",
    "nf4": "--method nf4",
}


def quantize(teacher, target, flags, args):
    calibration = ["--calibration", args.data / "valid.txt", "--samples", args.samples, "--length", args.length]
    words = [w for flag in flags.split() for w in (calibration if flag == "CALIBRATION" else [flag])]
    command = [args.program, "quantize", teacher, target, *words, "--no-smoke", "--json"]
    begin = time.monotonic()
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
    last = json.loads(done.stdout.splitlines()[-1])
    weights = last["compressed_weights"]
    return {"bits": 8 * last["compressed_bytes"] / weights if weights else 0, "bytes": last["bytes"],
            "seconds": time.monotonic() - begin}


def measure(teacher, folder, cache, args):
    command = [args.program, "eval", folder, "--kl", teacher, args.data / "wiki.test.raw", "--tokens", args.tokens, "--json",
               "--reference-cache", cache]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def table(key, teacher, results):
    base = results[BASE]["kl_mean"] if BASE in results else None
    tokens = next(iter(results.values()))["tokens"]
    lines = [f"Teacher ({key}) `{teacher.name}`, {tokens} tokens", "",
             "| method | bits | bytes | KL (95 %) | of rtn | KL p99 | same top-1 | ppl ratio |", "|---|---|---|---|---|---|---|---|"]
    for name, r in results.items():
        of_base = f"{r['kl_mean'] / base:.2f}" if base else ""
        lines.append(f"| {name} | {r['bits']:.3f} | {r['bytes'] / 1e6:.1f} MB "
                     f"| {r['kl_mean']:.4f} ({r['kl_ci'][0]:.4f}-{r['kl_ci'][1]:.4f}) | {of_base} "
                     f"| {r['kl_p99']:.3f} | {100 * r['top1']:.1f} % | {r['ppl_ratio']:.4f} |")
    return "\n".join(lines) + "\n"


def known_results(path):
    """Of an earlier run, by teacher and row: a run that was stopped goes on."""
    if not path or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {(line["teacher"], line["row"], line["asked_tokens"]): line for line in lines}


def run(key, args, known):
    teacher = args.teachers / TEACHERS[key]
    if not teacher.exists():
        sys.exit(f"{teacher}: found nothing, allowed is what tools/make_teachers.py makes")
    results = {}
    with tempfile.TemporaryDirectory(prefix="quintet-quality-") as work:
        cache = (args.cache or Path(work)) / f"{teacher.stem}.{args.tokens}.logp"
        for name, flags in ROWS.items():
            if not re.search(args.only, name):
                continue
            line = known.get((key, name, args.tokens))
            if not line:
                folder = Path(work) / "model"
                line = quantize(teacher, folder, flags, args) | measure(teacher, folder, cache, args)
                line |= {"teacher": key, "row": name, "asked_tokens": args.tokens}
                shutil.rmtree(folder)
                if args.results:
                    with open(args.results, "a") as file:
                        file.write(json.dumps(line) + "\n")
                print(f"({key}) {name}: KL {line['kl_mean']:.4f}, {line['seconds']:.0f} s", file=sys.stderr, flush=True)
            results[name] = line
    return table(key, teacher, results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/quintet")
    parser.add_argument("--teachers", type=Path, default=ROOT / "models/teachers", help="what tools/make_teachers.py made")
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data/wikitext-2")
    parser.add_argument("--teacher", choices=TEACHERS, action="append", help="this one alone (repeatable)")
    parser.add_argument("--only", default=".", help="rows whose name matches")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--cache", type=Path, help="keep the teachers' probabilities in this folder")
    parser.add_argument("--results", type=Path, help="one JSON line a row, which a later run does not measure again")
    parser.add_argument("--out", type=Path, help="append the tables to this file")
    args = parser.parse_args()
    for key in args.teacher or TEACHERS:
        text = run(key, args, known_results(args.results))
        print(text, flush=True)
        if args.out:
            with open(args.out, "a") as file:
                file.write(text + "\n")


if __name__ == "__main__":
    main()
