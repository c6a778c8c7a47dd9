#!/usr/bin/env python3
"""GPTQ as quintet makes it beside GPTQModel's: the same weights, calibration tokens and settings, both results read by
`quintet eval --kl` against the same uncompressed model.

    bench/gptq_peer.py [MODEL] [--group-size N] [--only REGEX] [--tokens N] [--threads N] [--results FILE]

MODEL is an F16 GGUF file (tools/make_teachers.py makes some), which Transformers turns into a folder that both take. The group
must divide all rows: files of GPTQ's have one group size. Prints a Markdown table. Runs in the environment of `make
test-interop` (tests/interop/requirements.txt), GPTQModel on the CPU. The last rows are what GPTQModel does by default, and what
it can do with searched ranges, which ours always are.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "4")  # with fewer than two it does not start
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parent.parent
# Row: our flags (None: GPTQModel alone has it), GPTQModel's settings.
ROWS = {
    "own order": (["--no-act-order"], {"desc_act": False, "act_group_aware": False}),
    "act-order": ([], {"desc_act": True, "act_group_aware": False}),
    "act-order of whole groups": (None, {"desc_act": False, "act_group_aware": True}),
    "act-order, ranges searched (mse=2.4)": (None, {"desc_act": True, "act_group_aware": False, "mse": 2.4}),
}


def make_source(model, folder):
    """The uncompressed model in FP16 as Transformers writes it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(model.parent), "gguf_file": model.name}
    dense = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float16, quantization_config=GgufConfig(dequantize=True))
    dense.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def stretches(args):
    """The tokens that `quintet quantize --calibration` takes: stretches spread evenly over the text, without overlap."""
    done = subprocess.run([args.program, "tokenize", args.model, "--file", args.calibration], stdout=subprocess.PIPE, text=True, check=True)
    ids = [int(word) for word in done.stdout.split()]
    there = len(ids) // args.length
    count = min(args.samples, there)
    return [ids[begin : begin + args.length] for begin in (i * there // count * args.length for i in range(count))]


def ours(source, out, flags, args):
    command = [args.program, "quantize", source, out, "--method", "gptq", "--layout", "gptq", "--bits", args.bits, "--group-size",
               args.group_size, "--damping", args.damping, *flags, "--calibration", args.calibration, "--samples", args.samples,
               "--length", args.length, "--threads", args.threads, "--no-smoke"]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def theirs(source, out, settings, args):
    import torch
    from gptqmodel import GPTQModel, QuantizeConfig

    torch.set_num_threads(args.threads)
    samples = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in stretches(args)]
    config = QuantizeConfig(device="cpu", bits=args.bits, group_size=args.group_size, sym=True, damp_percent=args.damping, **settings)
    model = GPTQModel.load(str(source), config, trust_remote_code=False)
    model.quantize(samples, batch_size=1)
    model.save(str(out))
    for name in ("tokenizer.json", "tokenizer_config.json"):  # the same text must give the same tokens
        shutil.copy(source / name, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=ROOT / "models/teachers/smollm2-135m-noise-f16.gguf")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/quintet")
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data/wikitext-2")
    parser.add_argument("--only", default=".", help="rows whose name matches")
    parser.add_argument("--bits", type=int, choices=[4, 8], default=4)
    parser.add_argument("--group-size", type=int, choices=[32, 64, 128], default=64)
    parser.add_argument("--damping", type=float, default=0.01)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path, help="append one JSON line a model to this file")
    args = parser.parse_args()
    args.calibration = args.data / "valid.txt"
    lines = ["| settings | made by | seconds | KL (95 %) | same top-1 | ppl ratio |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="quintet-gptq-") as work:
        source = Path(work) / "source"
        make_source(args.model, source)
        for name, (flags, settings) in ROWS.items():
            if not re.search(args.only, name):
                continue
            for maker, make, how in (("quintet", ours, flags), ("GPTQModel", theirs, settings)):
                if how is None:
                    continue
                out = Path(work) / "made"
                shutil.rmtree(out, ignore_errors=True)
                begin = time.monotonic()
                make(source, out, how, args)
                seconds = time.monotonic() - begin
                command = [args.program, "eval", out, "--kl", args.model, args.data / "wiki.test.raw", "--tokens", args.tokens,
                           "--json", "--threads", args.threads, "--reference-cache", Path(work) / "reference.logp"]
                done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
                r = json.loads(done.stdout) | {"row": name, "maker": maker, "seconds": seconds}
                if args.results:
                    with open(args.results, "a") as file:
                        file.write(json.dumps(r) + "\n")
                lines.append(f"| {name} | {maker} | {seconds:.0f} | {r['kl_mean']:.4f} ({r['kl_ci'][0]:.4f}-{r['kl_ci'][1]:.4f}) "
                             f"| {100 * r['top1']:.1f} % | {r['ppl_ratio']:.4f} |")
                print(lines[-1], flush=True)
    print("\n".join(["", *lines]))


if __name__ == "__main__":
    main()
