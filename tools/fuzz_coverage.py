#!/usr/bin/env python3
"""Checks that each fuzz target's committed seeds reach enough lines of every source of the parser that it is for.
usage: fuzz_coverage.py [--build build/fuzz-coverage] [--least 80] [TARGET ...]"""

import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(*command, **options):
    return subprocess.run(command, check=True, cwd=ROOT, **options)


def source_of(path, build):
    """The file of this checkout that a path of the coverage map means, relative to its root; None: not of it.

    Such a path may be relative to the build folder, and where ccache had the object, it names the checkout that the
    object was compiled in first: then the longest end of the path that is a file here counts.
    """
    parts = os.path.normpath(os.path.join(ROOT, build, path)).split(os.sep)
    root = os.path.normpath(ROOT).split(os.sep)
    if parts[:len(root)] == root:
        return os.path.join(*parts[len(root):])
    ends = (os.path.join(*parts[i:]) for i in range(1, len(parts) - 1))
    return next((end for end in ends if os.path.isfile(os.path.join(ROOT, end))), None)


def counted(name, covers, summaries):
    """{source: (lines, covered lines)} of the sources that the target's COVERS name: files, or folders with all below."""
    found = {}
    for cover in covers:
        own = {source: lines for source, lines in summaries.items() if source == cover or source.startswith(cover + "/")}
        if not own:
            sys.exit(f"{name}: COVERS in fuzz/CMakeLists.txt names {cover}, found no such source in the program; those of "
                     f"its folder are {', '.join(sorted(s for s in summaries if os.path.dirname(s) == os.path.dirname(cover))) or 'none'}")
        found.update(own)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--build", default="build/fuzz-coverage")
    parser.add_argument("--least", type=float, default=80)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    run("cmake", "--preset", "fuzz", "-B", options.build, "-DQUINTET_FUZZ_COVERAGE=ON", stdout=subprocess.DEVNULL)
    folder = os.path.join(options.build, "fuzz")
    with open(os.path.join(ROOT, folder, "covers.txt"), encoding="utf-8") as file:
        covers = {line.split()[0]: line.split()[1:] for line in file if line.strip()}
    names = options.targets or sorted(covers)
    if unknown := [name for name in names if name not in covers]:
        sys.exit(f"found no target {', '.join(unknown)}, allowed are {', '.join(sorted(covers))}")
    run("cmake", "--build", options.build, f"-j{options.jobs}", "--target", *[f"{name}_fuzz" for name in names])
    poor = []
    for name in names:
        target = os.path.join(folder, f"{name}_fuzz")
        raw, data = f"{target}.profraw", f"{target}.profdata"
        run(target, os.path.join("fuzz/corpus", name), "-runs=0", "-verbosity=0",
            env={**os.environ, "LLVM_PROFILE_FILE": os.path.join(ROOT, raw)}, stderr=subprocess.DEVNULL)
        run("llvm-profdata-14", "merge", "-sparse", raw, "-o", data)
        report = run("llvm-cov-14", "export", "-summary-only", f"-instr-profile={data}", target,
                     capture_output=True, text=True).stdout
        summaries = {}
        for file in json.loads(report)["data"][0]["files"]:
            if source := source_of(file["filename"], options.build):
                summaries[source] = (file["summary"]["lines"]["count"], file["summary"]["lines"]["covered"])
        sources = counted(name, covers[name], summaries)
        for source, (lines, reached) in sorted(sources.items()):
            percent = 100 * reached / max(lines, 1)
            print(f"  {source}: {percent:.1f} % of {lines} lines")
            if percent < options.least:
                poor.append(f"{source} ({name})")
        lines, reached = (sum(column) for column in zip(*sources.values()))
        print(f"{name}: {100 * reached / max(lines, 1):.1f} % of {lines} lines", flush=True)
    if poor:
        sys.exit(f"below {options.least:g} %: {', '.join(poor)}")


if __name__ == "__main__":
    main()
