#!/usr/bin/env python3
"""Writes a Hugging Face folder of a large shape with random weights: for memory and time of `quintet quantize`, not quality.

    tools/make_shape_model.py DIR [--layers N] [--hidden N] [--ffn N] [--heads N] [--kv-heads N]

The defaults are those of Llama 70B with one layer; 1.7 GB a layer in F16. Weights are heavy-tailed (one in 200 is six times as
large) and seeded. The tokenizer is that of tests/golden/data/tiny/llama3 (a token a byte). Needs numpy.
"""
import argparse
import json
import shutil
import struct
from pathlib import Path

import numpy as np

TINY = Path(__file__).resolve().parent.parent / "tests/golden/data/tiny/llama3"
VOCABULARY = 272
ROWS_AT_ONCE = 1024


def shapes(args):
    head = args.hidden // args.heads
    yield "model.embed_tokens.weight", (VOCABULARY, args.hidden)
    for layer in range(args.layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (args.hidden,)
        yield prefix + "self_attn.q_proj.weight", (args.hidden, args.hidden)
        yield prefix + "self_attn.k_proj.weight", (args.kv_heads * head, args.hidden)
        yield prefix + "self_attn.v_proj.weight", (args.kv_heads * head, args.hidden)
        yield prefix + "self_attn.o_proj.weight", (args.hidden, args.hidden)
        yield prefix + "post_attention_layernorm.weight", (args.hidden,)
        yield prefix + "mlp.gate_proj.weight", (args.ffn, args.hidden)
        yield prefix + "mlp.up_proj.weight", (args.ffn, args.hidden)
        yield prefix + "mlp.down_proj.weight", (args.hidden, args.ffn)
    yield "model.norm.weight", (args.hidden,)
    yield "lm_head.weight", (VOCABULARY, args.hidden)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    for name, value in (("layers", 1), ("hidden", 8192), ("ffn", 28672), ("heads", 64), ("kv-heads", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    args.folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, args.folder)
    (args.folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": args.hidden, "intermediate_size": args.ffn,
        "num_hidden_layers": args.layers, "num_attention_heads": args.heads, "num_key_value_heads": args.kv_heads,
        "vocab_size": VOCABULARY, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257}, indent=2))
    header, offset = {}, 0
    for name, shape in shapes(args):
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(70)
    with open(args.folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes(args):
            if len(shape) == 1:
                file.write(np.ones(shape, np.float16).tobytes())
                continue
            for begin in range(0, shape[0], ROWS_AT_ONCE):
                rows = min(ROWS_AT_ONCE, shape[0] - begin)
                weights = random.standard_normal((rows, shape[1]), np.float32) * (shape[1] ** -0.5)
                weights[random.random(weights.shape, np.float32) < 0.005] *= 6
                file.write(weights.astype(np.float16).tobytes())


if __name__ == "__main__":
    main()
