#!/usr/bin/env python3
"""`quintet quantize --method auto` beside each of the formats that it chooses from, given to all tensors alike.

    bench/auto_formats.py [--teacher b] [--budget FORMAT|BYTES ...] [--only REGEX] [--tokens N] [--threads N] [--results FILE]

Uniform: every linear layer, embedding and head in one format, integers by GPTQ. A budget is a number of bytes of all tensors
or the format whose uniform model has as many. `auto` gets so many bytes at most, and its KL is held against the least KL of the
uniform models that are no larger than the budget (bytes in the table are those of the tensors in the result). Both
calibrate on the same text.
"""
import argparse
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from quality import ROOT, TEACHERS, known_results, measure, quantize

# Those of compress/format_errors.cpp.
FORMATS = ["int3_g128", "int3_g128_asym", "int3_g64", "int3_g64_asym", "int3_g32", "int3_g32_asym", "int4_g128", "int4_g128_asym",
           "iq4_xs", "int4_g64", "int4_g64_asym", "q4_0", "iq4_nl", "q4_k", "q4_1", "q5_0", "q5_k", "q5_1", "q6_k", "int8_g128", "q8_0"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/quintet")
    parser.add_argument("--teachers", type=Path, default=ROOT / "models/teachers", help="what tools/make_teachers.py made")
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data/wikitext-2")
    parser.add_argument("--teacher", choices=TEACHERS, default="b")
    parser.add_argument("--budget", nargs="+", default=["int4_g128", "q4_1"])
    parser.add_argument("--only", default=".", help="uniform formats whose name matches")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--results", type=Path, help="one JSON line a model, which a later run does not measure again")
    args = parser.parse_args()
    teacher = args.teachers / TEACHERS[args.teacher]
    known = known_results(args.results)
    lines = ["| formats | bytes | KL (95 %) | of the best uniform | same top-1 |", "|---|---|---|---|---|"]

    with tempfile.TemporaryDirectory(prefix="quintet-auto-") as work:

        def result(row, flags):
            r = known.get((args.teacher, row, args.tokens))
            if not r:
                folder = Path(work) / "model"
                r = quantize(teacher, folder, f"{flags} --threads {args.threads} CALIBRATION", args)
                r |= measure(teacher, folder, Path(work) / "teacher.logp", args) | {"tensor_bytes": r["bytes"]}
                r |= {"teacher": args.teacher, "row": row, "asked_tokens": args.tokens}
                shutil.rmtree(folder)
                if args.results:
                    with open(args.results, "a") as file:
                        file.write(json.dumps(r) + "\n")
                print(f"{row}: KL {r['kl_mean']:.4f}, {r['seconds']:.0f} s", file=sys.stderr, flush=True)
            return r

        def line(row, r, of_best):
            lines.append(f"| {row} | {r['tensor_bytes'] / 1e6:.2f} MB | {r['kl_mean']:.4f} ({r['kl_ci'][0]:.4f}-{r['kl_ci'][1]:.4f}) "
                         f"| {of_best} | {100 * r['top1']:.1f} % |")

        uniform = {name: result(name, f"--method gptq --tensor-format *={name}") for name in FORMATS if re.search(args.only, name)}
        for name, r in sorted(uniform.items(), key=lambda item: item[1]["tensor_bytes"]):
            line(name, r, "")
        for budget in args.budget:
            allowed = uniform[budget]["tensor_bytes"] if budget in uniform else int(budget)
            fitting = [name for name, r in uniform.items() if r["tensor_bytes"] <= allowed]
            if not fitting:
                sys.exit(f"--budget: found {budget}, allowed are the bytes of the smallest uniform model and more")
            best = min(fitting, key=lambda name: uniform[name]["kl_mean"])
            row = f"auto, {allowed / 1e6:.2f} MB"
            r = result(row, f"--method auto --target-bytes {allowed}B")
            line(row, r, f"{r['kl_mean'] / uniform[best]['kl_mean']:.2f} ({best})")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
