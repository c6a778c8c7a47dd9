#!/usr/bin/env python3
"""Runs CTest in a build folder and ends with one line of counts over all single tests of all programs.
usage: run_tests.py BUILD [ctest arguments]"""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree


def main():
    if len(sys.argv) < 2 or not os.path.exists(os.path.join(sys.argv[1], "CMakeCache.txt")):
        sys.exit(f"{__doc__}\n{sys.argv[1] if len(sys.argv) > 1 else 'nothing'}: found no build folder")
    build, arguments = os.path.abspath(sys.argv[1]), sys.argv[2:]
    results = os.path.join(build, "test-results")
    shutil.rmtree(results, ignore_errors=True)
    os.makedirs(results)
    junit = os.path.join(results, "ctest.xml")
    environment = dict(os.environ, GTEST_OUTPUT=f"xml:{results}/gtest/", CTEST_OUTPUT_ON_FAILURE="1")
    jobs = os.cpu_count() or 2
    code = subprocess.run(["ctest", "--test-dir", build, "-j", str(jobs), "--output-junit", junit,
                           "--no-tests=error", *arguments], env=environment).returncode
    passed = failed = skipped = 0
    counted = set()
    folder = os.path.join(results, "gtest")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        root = ElementTree.parse(os.path.join(folder, name)).getroot()
        counted.add(os.path.splitext(name)[0].removeprefix("quintet_").removesuffix("_tests"))
        for case in root.iter("testcase"):
            if case.find("failure") is not None:
                failed += 1
            elif case.get("result") == "skipped" or case.find("skipped") is not None:
                skipped += 1
                reason = case.find("skipped")
                print(f"skipped: {case.get('classname')}.{case.get('name')}: "
                      f"{(reason.get('message') if reason is not None else '') or ''}".strip())
            elif case.get("status") == "run":
                passed += 1
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        # A program that wrote no results of its own (a script, or one that crashed) counts as one test.
        status = case.get("status")
        if case.get("name") in counted and status != "fail":
            continue
        if status == "run":
            passed += 1
        elif status == "fail":
            failed += case.get("name") not in counted or failed == 0
        else:
            skipped += 1
            print(f"skipped: {case.get('name')}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed or code else 0)


if __name__ == "__main__":
    main()
