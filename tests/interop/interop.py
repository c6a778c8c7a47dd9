#!/usr/bin/env python3
"""Folders and files that other tools make, through quintet; and what quintet makes, through other tools. Compares logits.

    tests/interop/interop.py [--program build/release/quintet] [--work DIR] [--only REGEX]

Makes a small random Llama with Transformers, compresses it with each tool, and compares what the tool's own code and
quintet say of the same tokens. A case that its tool cannot run on this machine counts as failed: nothing is skipped. Run by
`make test-interop` in an environment of its own (tests/interop/requirements.txt); takes minutes.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "4")  # with fewer than two it does not start
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests/golden/data/tiny/llama3"
TEXT = "What is a model worth that another program cannot read? 0123456789, and so on."
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Work:
    """Folders of one run, and the two ways to logits."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.source = folder / "source"

    def quintet(self, *words):
        command = [str(self.program), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
        return done.stdout

    def ids(self):
        return [int(token) for token in self.quintet("tokenize", self.source, "--bos", "-p", TEXT).split()]

    def our_logits(self, model):
        out = self.folder / "logits.npy"
        out.unlink(missing_ok=True)
        self.quintet("run", model, "--raw", "-p", TEXT, "-n", 0, "--dump-logits", out, "--device", "reference")
        return np.load(out)

    def compress(self, name, *flags):
        out = self.folder / name
        shutil.rmtree(out, ignore_errors=True)
        self.quintet("quantize", self.source, out, *flags, "--no-smoke")
        return out

    def calibration(self):
        return ["--calibration", ROOT / "LICENSE", "--samples", 16, "--length", 128]

    def inspects_and_serves(self, model):
        """inspect, run and eval take the folder; serving is run's path behind HTTP and is tried by the e2e tests."""
        self.quintet("inspect", model)
        self.quintet("eval", model, "--perplexity", ROOT / "LICENSE", "--tokens", 100, "--context", 64)


def copy_tokenizer(folder):
    shutil.copy(TOKENIZER / "tokenizer.json", folder)
    config = json.loads((TOKENIZER / "tokenizer_config.json").read_text())
    # Transformers 5 takes special tokens as texts alone.
    config = {key: value["content"] if isinstance(value, dict) and "content" in value else value for key, value in config.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "PreTrainedTokenizerFast"}))


def make_source(folder):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, vocab_size=272, max_position_embeddings=512, tie_word_embeddings=False,
                         bos_token_id=256, eos_token_id=257)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3)
    model.to(torch.float16).save_pretrained(folder)
    copy_tokenizer(folder)


def transformers_logits(folder, ids, dtype=torch.float32, **more):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map="cpu", **more).eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def gptqmodel_logits(folder, ids, backend):
    from gptqmodel import GPTQModel

    # Left to itself it computes in BF16 on a CPU.
    model = GPTQModel.load(str(folder), device="cpu", backend=backend, dtype=torch.float16, trust_remote_code=False)
    with torch.no_grad():
        return model.model(torch.tensor([ids])).logits[0].float().numpy()


def compare(ours, theirs, allowed):
    """`allowed`: of the logits' spread. What the other tool computes in 16 bits is its own."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        raise AssertionError(f"shapes {ours.shape} and {theirs.shape}")
    spread = float(np.std(theirs))
    largest = float(np.max(np.abs(ours - theirs)))

    def log_softmax(x):
        x = x - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    p, q = log_softmax(theirs), log_softmax(ours)
    kl = float((np.exp(p) * (p - q)).sum(axis=1).mean())
    print(f"    largest difference {largest:.5f} of a spread of {spread:.3f}, KL {kl:.2e}", flush=True)
    if not largest <= allowed * spread:
        raise AssertionError(f"logits differ by {largest:.4f}, allowed are {allowed * spread:.4f}")


@case
def dense_folder(work):
    compare(work.our_logits(work.source), transformers_logits(work.source, work.ids()), 1e-3)


def gptq_theirs(work, name, **settings):
    from gptqmodel import GPTQModel, QuantizeConfig
    from gptqmodel.utils.backend import BACKEND
    from transformers import AutoTokenizer

    out = work.folder / name
    shutil.rmtree(out, ignore_errors=True)
    tokenizer = AutoTokenizer.from_pretrained(work.source)
    text = (ROOT / "LICENSE").read_text()
    samples = [{"input_ids": ids, "attention_mask": [1] * len(ids)}
               for ids in (tokenizer(text[i : i + 400])["input_ids"] for i in range(0, 6400, 400))]
    model = GPTQModel.load(str(work.source), QuantizeConfig(device="cpu", **settings), trust_remote_code=False)
    model.quantize(samples, batch_size=1, tokenizer=tokenizer)
    model.save(str(out))
    copy_tokenizer(out)  # it saves one without the special tokens
    work.inspects_and_serves(out)
    return out, BACKEND


@case
def gptq_of_theirs_symmetric(work):
    out, backends = gptq_theirs(work, "gptq-sym", bits=4, group_size=128, desc_act=False, sym=True)
    compare(work.our_logits(out), gptqmodel_logits(out, work.ids(), backends.GPTQ_TORCH), 0.02)


@case
def gptq_of_theirs_act_order(work):
    out, backends = gptq_theirs(work, "gptq-act", bits=4, group_size=64, desc_act=True, act_group_aware=False, sym=True)
    compare(work.our_logits(out), gptqmodel_logits(out, work.ids(), backends.GPTQ_TORCH), 0.02)


@case
def gptq_of_theirs_asymmetric_v2(work):
    from gptqmodel.quantization import FORMAT

    out, backends = gptq_theirs(work, "gptq-v2", bits=4, group_size=64, desc_act=False, sym=False, format=FORMAT.GPTQ_V2)
    compare(work.our_logits(out), gptqmodel_logits(out, work.ids(), backends.GPTQ_TORCH), 0.03)


@case
def gptq_of_theirs_8_bits(work):
    out, backends = gptq_theirs(work, "gptq-8", bits=8, group_size=128, desc_act=False, sym=True)
    compare(work.our_logits(out), gptqmodel_logits(out, work.ids(), backends.GPTQ_TORCH), 0.02)


@case
def awq_of_theirs(work):
    from gptqmodel.quantization import FORMAT, METHOD

    out, backends = gptq_theirs(work, "awq-theirs", bits=4, group_size=128, quant_method=METHOD.AWQ, format=FORMAT.GEMM)
    compare(work.our_logits(out), gptqmodel_logits(out, work.ids(), backends.AWQ_TORCH), 0.03)


@case
def nf4_of_bitsandbytes(work):
    import bitsandbytes
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    for nested in (False, True):
        out = work.folder / f"bnb-{nested}"
        shutil.rmtree(out, ignore_errors=True)
        settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=nested,
                                      bnb_4bit_compute_dtype=torch.float32)
        model = AutoModelForCausalLM.from_pretrained(work.source, quantization_config=settings, device_map="cpu",
                                                     dtype=torch.float32).eval()
        model.save_pretrained(out)  # before it runs: its first step on a CPU lays the weights out anew
        copy_tokenizer(out)
        # Its products on a CPU are computed in BF16; its own decoder's weights in a plain model are not.
        plain = AutoModelForCausalLM.from_pretrained(work.source, dtype=torch.float32, device_map="cpu").eval()
        for name, module in model.named_modules():
            if isinstance(module, bitsandbytes.nn.Linear4bit):
                weight = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
                plain.get_submodule(name).weight.data.copy_(weight)
        with torch.no_grad():
            theirs = plain(torch.tensor([work.ids()])).logits[0].float().numpy()
        work.inspects_and_serves(out)
        compare(work.our_logits(out), theirs, 0.02)


def compressed_tensors_theirs(work, name, weights, fmt):
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (QuantizationArgs, QuantizationConfig, QuantizationScheme,
                                                 QuantizationStatus, apply_quantization_config)
    from compressed_tensors.quantization.utils import calculate_qparams
    from transformers import AutoModelForCausalLM

    out = work.folder / name
    shutil.rmtree(out, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(work.source, dtype=torch.float32, device_map="cpu").eval()
    args = QuantizationArgs(**weights)
    config = QuantizationConfig(config_groups={"group_0": QuantizationScheme(targets=["Linear"], weights=args, format=fmt)},
                                ignore=["lm_head"], format=fmt, quantization_status=QuantizationStatus.INITIALIZED)
    apply_quantization_config(model, config)
    for module in model.modules():
        if not hasattr(module, "weight_scale"):
            continue
        weight = module.weight.data
        if args.strategy == "group":
            parts = weight.reshape(weight.shape[0], -1, args.group_size)
            low, high = parts.amin(-1), parts.amax(-1)
        else:
            low, high = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
        scale, zero = calculate_qparams(low, high, args)
        module.weight_scale.data.copy_(scale.to(module.weight_scale.dtype))
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data.copy_(zero.to(module.weight_zero_point.dtype))
        module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model)
    with torch.no_grad():
        theirs = model(torch.tensor([work.ids()])).logits[0].float().numpy()
    compressor.compress_model(model)
    model.save_pretrained(out)
    compressor.update_config(str(out))
    copy_tokenizer(out)
    work.inspects_and_serves(out)
    compare(work.our_logits(out), theirs, 0.02)


@case
def w4a16_of_compressed_tensors(work):
    compressed_tensors_theirs(work, "w4a16", dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=128),
                              "pack-quantized")


@case
def w4a16_asymmetric_of_compressed_tensors(work):
    compressed_tensors_theirs(work, "w4a16a", dict(num_bits=4, type="int", symmetric=False, strategy="group", group_size=64),
                              "pack-quantized")


@case
def fp8_of_compressed_tensors(work):
    compressed_tensors_theirs(work, "fp8", dict(num_bits=8, type="float", symmetric=True, strategy="channel"), "float-quantized")


@case
def gptq_of_ours(work):
    from gptqmodel.utils.backend import BACKEND

    for bits in (4, 8):
        out = work.compress(f"ours-gptq-{bits}", "--method", "gptq", "--layout", "gptq", "--bits", bits, *work.calibration())
        compare(work.our_logits(out), gptqmodel_logits(out, work.ids(), BACKEND.GPTQ_TORCH), 0.02)


@case
def asymmetric_gptq_of_ours(work):
    from gptqmodel.utils.backend import BACKEND

    for bits in (4, 8):
        out = work.compress(f"ours-gptq-asym-{bits}", "--method", "gptq", "--layout", "gptq", "--asymmetric", "--group-size", 64,
                            "--bits", bits, *work.calibration())
        compare(work.our_logits(out), gptqmodel_logits(out, work.ids(), BACKEND.GPTQ_TORCH), 0.03)


@case
def asymmetric_awq_of_ours(work):
    from gptqmodel.utils.backend import BACKEND

    out = work.compress("ours-awq-asym", "--method", "awq", "--layout", "awq", "--asymmetric", *work.calibration())
    compare(work.our_logits(out), gptqmodel_logits(out, work.ids(), BACKEND.AWQ_TORCH), 0.03)


@case
def gptq_of_ours_in_transformers(work):
    out = work.compress("ours-gptq-t", "--method", "rtn", "--layout", "gptq", "--group-size", 64)
    compare(work.our_logits(out), transformers_logits(out, work.ids(), dtype=torch.float16), 0.03)


@case
def awq_of_ours(work):
    from gptqmodel.utils.backend import BACKEND

    out = work.compress("ours-awq", "--method", "awq", "--layout", "awq", *work.calibration())
    compare(work.our_logits(out), gptqmodel_logits(out, work.ids(), BACKEND.AWQ_TORCH), 0.03)


def llama_cpp_logits(path, ids):
    import llama_cpp

    model = llama_cpp.Llama(model_path=str(path), n_ctx=256, logits_all=True, verbose=False, n_threads=2)
    model.eval(ids)
    return np.array(model.scores[: len(ids)])


@case
def converted_file_in_llama_cpp(work):
    # llama.cpp rounds the inputs of Q8_0's products to 8 bits: 0.07 here, where the format itself changes logits by 0.11.
    for kind, allowed in (("f16", 0.01), ("q8_0", 0.15)):
        out = work.folder / f"source-{kind}.gguf"
        out.unlink(missing_ok=True)
        work.quintet("convert", work.source, out, "--type", kind)
        compare(work.our_logits(out), llama_cpp_logits(out, work.ids()), allowed)


@case
def k_quants_in_llama_cpp(work):
    base = work.folder / "base.gguf"
    base.unlink(missing_ok=True)
    work.quintet("convert", work.source, base)
    for mix in ("q4_k_m", "q3_k_m", "q6_k", "q2_k", "iq4_xs"):
        out = work.folder / f"{mix}.gguf"
        out.unlink(missing_ok=True)
        work.quintet("quantize", base, out, "--method", mix, "--no-smoke", *work.calibration())
        # llama.cpp rounds the inputs of these products to 8 bits: 0.12 for q4_k_m, which changes logits by 1.36 itself.
        compare(work.our_logits(out), llama_cpp_logits(out, work.ids()), 0.25)


@case
def mixes_of_a_folder_in_llama_cpp(work):
    """Made of the Hugging Face folder at once, weighted by an importance matrix that was written and read."""
    matrix = work.folder / "imatrix.gguf"
    for mix, how in (("q4_k_m", ["--save-imatrix", matrix, *work.calibration()]), ("q5_k_m", ["--imatrix", matrix])):
        out = work.folder / f"folder-{mix}.gguf"
        out.unlink(missing_ok=True)
        work.quintet("quantize", work.source, out, "--method", mix, "--no-smoke", *how)
        compare(work.our_logits(out), llama_cpp_logits(out, work.ids()), 0.25)


@case
def perplexity_of_smollm2(work):
    """The first 2,048 tokens of WikiText-2's test part, cut into windows of 512 as `quintet eval` does: within 0.1 %."""
    from transformers import AutoModelForCausalLM

    model_file = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
    text = ROOT / "../shared/data/wikitext-2/wiki.test.raw"
    ours = json.loads(work.quintet("eval", model_file, "--perplexity", text, "--tokens", 2048, "--context", 512, "--json"))
    # From the file itself: Python would read its line ends as others.
    ids = [int(token) for token in work.quintet("tokenize", model_file, "-f", text).split()[:2048]]
    model = AutoModelForCausalLM.from_pretrained(model_file.parent, gguf_file=model_file.name, dtype=torch.float32).eval()
    nll, count = 0.0, 0
    for begin in range(0, len(ids), 512):
        window = torch.tensor([ids[begin : begin + 512]])
        with torch.no_grad():
            log_p = torch.log_softmax(model(window).logits[0].double(), dim=-1)
        nll -= log_p[:-1].gather(1, window[0, 1:, None]).sum().item()
        count += window.shape[1] - 1
    theirs = float(np.exp(nll / count))
    print(f"    {ours['ppl']:.4f} here, {theirs:.4f} in Transformers, {count} tokens", flush=True)
    if ours["tokens"] != count or not abs(ours["ppl"] / theirs - 1) < 1e-3:
        raise AssertionError(f"{ours['ppl']} over {ours['tokens']} tokens, not {theirs} over {count}")


@case
def choices_answer_as_transformers_logits_say(work):
    """Accuracy of --choices on a few made-up questions, and the answers that the likeliest letter gives in Transformers."""
    from transformers import AutoModelForCausalLM

    model_file = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
    folder = work.folder / "choices"
    shutil.rmtree(folder, ignore_errors=True)
    questions = [(f"What is {a} plus {b}?", [str(a + b + d) for d in (-1, 0, 2, 5)], "B") for a, b in ((2, 3), (7, 8), (20, 4), (9, 9))]
    questions += [("Which of these is a colour?", ["stone", "red", "seven", "run"], "B"), ("Which is an animal?", ["dog", "blue", "ten", "up"], "A"),
                  ("Which is a city?", ["green", "walk", "Paris", "apple"], "C"), ("Which is a fruit?", ["chair", "sand", "slow", "pear"], "D")]
    for half, some in (("dev", questions[:2]), ("test", questions)):
        (folder / half).mkdir(parents=True)
        lines = [",".join([question, *options, answer]) for question, options, answer in some]
        (folder / half / f"simple_things_{half}.csv").write_text("\n".join(lines) + "\n")
    ours = json.loads(work.quintet("eval", model_file, "--choices", folder, "--shots", 2, "--json"))
    model = AutoModelForCausalLM.from_pretrained(model_file.parent, gguf_file=model_file.name, dtype=torch.float32).eval()

    def ids_of(text):
        done = subprocess.run([str(work.program), "tokenize", str(model_file), "--jsonl"], input=json.dumps(text) + "\n",
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def shown(question, options, answer=None):
        lines = [question, *(f"{letter}. {option}" for letter, option in zip("ABCD", options)), "Answer:" + (f" {answer}\n\n" if answer else "")]
        return "\n".join(lines)

    head = "The following are multiple choice questions (with answers) about simple things.\n\n"
    head += "".join(shown(*question) for question in questions[:2])
    letters = [ids_of(f"Answer: {letter}")[-1] for letter in "ABCD"]
    right = 0
    for question, options, answer in questions:
        with torch.no_grad():
            logits = model(torch.tensor([ids_of(head + shown(question, options))])).logits[0, -1]
        right += "ABCD"[int(torch.argmax(logits[letters]))] == answer
    print(f"    {ours['accuracy']:.3f} here, {right / len(questions):.3f} in Transformers", flush=True)
    if ours["accuracy"] != right / len(questions) or ours["questions"] != len(questions):
        raise AssertionError(f"{ours}, not {right} of {len(questions)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/quintet")
    parser.add_argument("--work", type=Path, default=ROOT / ".cache/interop/work")
    parser.add_argument("--only", default=".", help="cases whose name matches")
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    work = Work(args.program.resolve(), args.work.resolve())
    os.chdir(work.folder)  # GPTQModel leaves its logs where it runs
    make_source(work.source)
    passed, failed = 0, []
    for name, function in CASES.items():
        if not re.search(args.only, name):
            continue
        print(f"{name}", flush=True)
        try:
            function(work)
            passed += 1
        except Exception:
            traceback.print_exc()
            failed.append(name)
    print(f"interop: {passed} passed, {len(failed)} failed{': ' + ', '.join(failed) if failed else ''}")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
