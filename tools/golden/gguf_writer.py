"""Writes a tiny model as GGUF with the conventions of converted files: names, row order of q and k, added ones."""

import gguf
import numpy as np
import torch

from . import tokenizer

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3",
                 "gemma3_text": "gemma3"}
NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GEMMA_NAMES = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}


def name_of(key, architecture):
    names = NAMES | (GEMMA_NAMES if architecture == "gemma3" else {})
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem, kind = key.rsplit(".", 1)
    if stem in outer:
        return f"{outer[stem]}.{kind}"
    _, _, layer, inner = stem.split(".", 3)
    return f"blk.{layer}.{names[inner]}.{kind}"


def interleave(rows, heads):
    """From halves (i, i + d / 2) to pairs (2 i, 2 i + 1) in each head: what llama files have for q and k."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def write(path, model, config, dtype):
    architecture = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, architecture)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_name(path.stem)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    add_rope(writer, config, architecture, head_dim)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "qwen2" and getattr(config, "use_sliding_window", False):
        writer.add_sliding_window_pattern([t == "sliding_attention" for t in config.layer_types])
    if architecture == "gemma3":
        writer.add_attention_scale(config.query_pre_attn_scalar ** -0.5)

    add_tokenizer(writer)
    state = dict(model.state_dict())
    if config.tie_word_embeddings:
        state.pop("lm_head.weight")
    for key, value in state.items():
        value = value.float().numpy()
        if architecture == "llama" and ("q_proj" in key or "k_proj" in key):
            value = interleave(value, config.num_attention_heads if "q_proj" in key else config.num_key_value_heads)
        if architecture == "gemma3" and "norm" in key:
            value = value + np.float32(1)
        add_tensor(writer, name_of(key, architecture), np.ascontiguousarray(value), dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tensor(writer, name, value, dtype):
    if value.ndim == 1 or dtype == torch.float32:
        writer.add_tensor(name, value)
    elif dtype == torch.float16:
        writer.add_tensor(name, value.astype(np.float16))
    else:
        bits = (value.view(np.uint32) >> 16).astype(np.uint16)  # exact: the values are BF16 ones
        writer.add_tensor(name, bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)


def add_rope(writer, config, architecture, head_dim):
    rope = config.rope_parameters
    if architecture == "gemma3":
        rope = rope["full_attention"]
    dims = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    writer.add_rope_dimension_count(dims)
    writer.add_rope_freq_base(rope["rope_theta"])
    kind = rope["rope_type"]
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, dims))
    elif kind == "longrope":
        original = rope["original_max_position_embeddings"]
        factor = config.max_position_embeddings / original
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(factor) / np.log(original))))
        writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))


def llama3_divisors(rope, dims):
    """Llama 3.1's scaling as a divisor for each frequency, which is how its GGUF files say it."""
    frequencies = rope["rope_theta"] ** -(np.arange(0, dims, 2) / dims)
    rotations = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    keep = np.clip((rotations - low) / (high - low), 0, 1)
    return (1 / ((1 - keep) / rope["factor"] + keep)).astype(np.float32)


def add_tokenizer(writer):
    texts = tokenizer.tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * len(tokenizer.SPECIAL)
                           + [gguf.TokenType.NORMAL])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(True)
    writer.add_chat_template(tokenizer.TEMPLATE)
