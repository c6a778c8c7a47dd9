#!/usr/bin/env python3
"""Checks that each fuzz target's committed seeds reach enough lines of the parser that it is for.
usage: fuzz_coverage.py [--build build/fuzz-coverage] [--least 80] [TARGET ...]"""

import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(*command, **options):
    return subprocess.run(command, check=True, cwd=ROOT, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--build", default="build/fuzz-coverage")
    parser.add_argument("--least", type=float, default=80)
    options = parser.parse_args()
    run("cmake", "--preset", "fuzz", "-B", options.build, "-DQUINTET_FUZZ_COVERAGE=ON", stdout=subprocess.DEVNULL)
    folder = os.path.join(options.build, "fuzz")
    with open(os.path.join(ROOT, folder, "covers.txt"), encoding="utf-8") as file:
        covers = {line.split()[0]: line.split()[1:] for line in file if line.strip()}
    names = options.targets or sorted(covers)
    run("cmake", "--build", options.build, "--target", *[f"{name}_fuzz" for name in names])
    poor = []
    for name in names:
        target = os.path.join(folder, f"{name}_fuzz")
        raw, data = f"{target}.profraw", f"{target}.profdata"
        run(target, os.path.join("fuzz/corpus", name), "-runs=0", "-verbosity=0",
            env={**os.environ, "LLVM_PROFILE_FILE": os.path.join(ROOT, raw)}, stderr=subprocess.DEVNULL)
        run("llvm-profdata-14", "merge", "-sparse", raw, "-o", data)
        report = run("llvm-cov-14", "export", "-summary-only", f"-instr-profile={data}", target, *covers[name],
                     capture_output=True, text=True).stdout
        lines = covered = 0
        for file in json.loads(report)["data"][0]["files"]:
            summary = file["summary"]["lines"]
            lines, covered = lines + summary["count"], covered + summary["covered"]
            print(f"  {os.path.relpath(file['filename'], ROOT)}: {summary['percent']:.1f} % of {summary['count']} lines")
        percent = 100 * covered / max(lines, 1)
        print(f"{name}: {percent:.1f} % of {lines} lines")
        if percent < options.least:
            poor.append(name)
    if poor:
        sys.exit(f"below {options.least} %: {', '.join(poor)}")


if __name__ == "__main__":
    main()
