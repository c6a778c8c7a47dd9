#!/usr/bin/env python3
"""Runs every libFuzzer target of a build folder for some seconds, each on a copy of its committed corpus.
usage: run_fuzz.py BUILD [--seconds N]"""

import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    targets = sorted(path for path in glob.glob(os.path.join(options.build, "fuzz", "*_fuzz")) if os.access(path, os.X_OK))
    if not targets:
        sys.exit(f"no fuzz targets under {options.build}/fuzz")
    failed = []
    for target in targets:
        name = os.path.basename(target).removesuffix("_fuzz")
        print(f"==> fuzz {name}, {options.seconds} s", flush=True)
        with tempfile.TemporaryDirectory() as corpus:
            shutil.copytree(os.path.join(ROOT, "fuzz", "corpus", name), corpus, dirs_exist_ok=True)
            result = subprocess.run([target, corpus, f"-max_total_time={options.seconds}", "-timeout=5",
                                     "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"])
        if result.returncode:
            failed.append(name)
    print(f"{len(targets) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
