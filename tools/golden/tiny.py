"""Tiny random models of each architecture: a Hugging Face folder, the same as GGUF, and logits of both."""

import json
import shutil

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import save_file

from . import gguf_writer, tokenizer
from .logits import forward_with_noise

VOCABULARY = tokenizer.VOCABULARY
TOKENS = 128
BASE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=64, max_position_embeddings=128, bos_token_id=256, eos_token_id=257)
SHORT = [1.0 + 0.02 * i for i in range(24)]
LONG = [1.0 + 0.35 * i for i in range(24)]
LONGROPE = dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG, rope_theta=10000.0,
                original_max_position_embeddings=64, partial_rotary_factor=0.75)

# name -> (configuration class, changes to BASE, dtype of the weights). Sequences are longer than the length before
# stretching (32 or 64) and than the windows (24).
MODELS = {
    "llama-plain": ("Llama", dict(num_key_value_heads=2, head_dim=16), "float32"),
    "llama-bias-tied": ("Llama", dict(attention_bias=True, tie_word_embeddings=True, head_dim=80), "bfloat16"),
    "llama-linear": ("Llama", dict(rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=10000.0)), "float16"),
    "llama3": ("Llama", dict(rope_parameters=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                  original_max_position_embeddings=32, rope_theta=500.0)), "bfloat16"),
    "llama-yarn": ("Llama", dict(rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=10000.0,
                                                      original_max_position_embeddings=32)), "bfloat16"),
    "mistral": ("Mistral", dict(sliding_window=24), "bfloat16"),
    "qwen2": ("Qwen2", dict(), "bfloat16"),
    "qwen2-yarn-window": ("Qwen2", dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=24, max_window_layers=1,
                                        rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=1e6, beta_fast=16.0,
                                                             original_max_position_embeddings=32)), "bfloat16"),
    "qwen3": ("Qwen3", dict(tie_word_embeddings=True), "bfloat16"),
    "phi3": ("Phi3", dict(sliding_window=24, hidden_size=128, num_hidden_layers=1, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), "bfloat16"),
    "phi3-longrope": ("Phi3", dict(hidden_size=128, num_hidden_layers=1, original_max_position_embeddings=64,
                                   tie_word_embeddings=True, rope_parameters=LONGROPE), "bfloat16"),
    "gemma3": ("Gemma3Text", dict(num_hidden_layers=6, sliding_window=24, query_pre_attn_scalar=40, rope_parameters=dict(
        full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
        sliding_attention=dict(rope_type="default", rope_theta=1e4))), "bfloat16"),
}


def build(name):
    """A model whose attention is decided and whose positions matter: Transformers' own initialisation leaves logits so
    flat that a wrong rope would hide in the rounding."""
    family, changes, dtype = MODELS[name]
    settings = BASE | changes
    if family == "Qwen2":  # the class has no head size of its own
        settings |= dict(hidden_size=128)
        settings.pop("head_dim")
    if family == "Phi3":
        settings.pop("head_dim")
        settings |= dict(pad_token_id=0)
    config = getattr(transformers, family + "Config")(**settings)
    config._attn_implementation = "eager"
    model = getattr(transformers, family.replace("Text", "") + "ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(sum(name.encode()))
    for key, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if "norm" in key:
            center = 0.0 if family == "Gemma3Text" else 1.0
            new = center + 0.3 * noise
        elif value.dim() == 1:
            new = 0.5 * noise
        elif "embed_tokens" in key:
            new = noise * (settings["hidden_size"] ** -0.5 if config.tie_word_embeddings else 1.0)
        else:
            new = noise * (1.5 * value.shape[1] ** -0.5)
        value.data = new.to(getattr(torch, dtype)).float()
    return model, config, getattr(torch, dtype)


def weights_of(model, config, dtype):
    """What a folder holds: tied heads once."""
    weights = {k: v.to(dtype).contiguous() for k, v in model.state_dict().items()}
    if config.tie_word_embeddings:
        weights.pop("lm_head.weight")
    return weights


def save_folder(folder, model, config, dtype):
    folder.mkdir(parents=True)
    config.dtype = dtype
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    weights = weights_of(model, config, dtype)
    if folder.name == "llama3":  # one model in two files with an index
        names = sorted(weights)
        parts = [names[: len(names) // 2], names[len(names) // 2:]]
        index = {}
        for number, part in enumerate(parts, 1):
            file = f"model-{number:05}-of-{len(parts):05}.safetensors"
            save_file({k: weights[k] for k in part}, folder / file)
            index |= {k: file for k in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}, indent=0))
    else:
        save_file(weights, folder / "model.safetensors")
    if folder.name in tokenizer.FOLDERS:
        tokenizer.save(folder)


def save_logits(path, ids, logits, noise):
    """The last positions and some in between, each with its whole row."""
    rows = sorted({0, 1, 2, 15, 16, 31, 32, 33, 63, 64, 65, len(ids) - 2, len(ids) - 1} & set(range(len(ids))))
    save_numpy({"ids": np.array(ids, np.int32), "rows": np.array(rows, np.int32),
                "logits": logits[rows].astype(np.float32), "noise": np.array([noise], np.float32)}, path)


def make_all(data):
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    for name in MODELS:
        model, config, dtype = build(name)
        save_folder(data / name, model, config, dtype)
        gguf_writer.write(data / f"{name}.gguf", model, config, dtype)
        generator = np.random.default_rng(len(name))
        ids = generator.integers(0, 256, TOKENS).tolist()
        lengths = {"": TOKENS} if name != "phi3-longrope" else {".short": 64, ".long": TOKENS}
        for suffix, length in lengths.items():
            logits, noise = forward_with_noise(model, ids[:length])
            save_logits(data / f"{name}{suffix}.logits.safetensors", ids[:length], logits, noise)
            print(f"{name + suffix:20} logits of rms {logits.std():.3f}, FP32 noise {noise:.2e}")
