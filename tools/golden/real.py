"""Logits and greedy continuations of the real models, from their GGUF files dequantized to FP32.

The weights are put into Transformers' modules here, tensor by tensor, and not by its own GGUF conversion."""

from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from .gguf_writer import name_of
from .logits import forward, forward_with_noise
from .spm import SentencePiece
from .texts import LONG_TEXT, PROMPTS

MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m.Q4_K_M.gguf",
          "qwen2": "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf"}
LONG_TOKENS = 640      # past Gemma's window of 512
ROW_STEP = 16          # every so many positions are kept
TOP = 48               # their largest logits,
SAMPLED = 48           # and some of the others
GREEDY_TOKENS = 64


class GgufModel:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.architecture = self.field("general.architecture")

    def field(self, key, default=None):
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def setting(self, key, default=None):
        return self.field(f"{self.architecture}.{key}", default)

    def config(self):
        family = {"llama": "Llama", "qwen2": "Qwen2", "gemma3": "Gemma3Text"}[self.architecture]
        names = {t.name for t in self.reader.tensors}
        head_dim = self.setting("attention.key_length", self.setting("embedding_length") // self.setting("attention.head_count"))
        rope = dict(rope_type="default", rope_theta=self.setting("rope.freq_base"))
        settings = dict(
            vocab_size=len(self.field("tokenizer.ggml.tokens")), hidden_size=self.setting("embedding_length"),
            intermediate_size=self.setting("feed_forward_length"), num_hidden_layers=self.setting("block_count"),
            num_attention_heads=self.setting("attention.head_count"), num_key_value_heads=self.setting("attention.head_count_kv"),
            head_dim=head_dim, rms_norm_eps=self.setting("attention.layer_norm_rms_epsilon"),
            max_position_embeddings=self.setting("context_length"), tie_word_embeddings="output.weight" not in names,
            rope_parameters=rope)
        if self.architecture == "gemma3":
            settings |= dict(sliding_window=self.setting("attention.sliding_window"), query_pre_attn_scalar=head_dim,
                             rope_parameters=dict(full_attention=rope, sliding_attention=rope | dict(rope_theta=10000.0)))
        if self.architecture == "qwen2":
            settings.pop("head_dim")
        config = getattr(transformers, family + "Config")(**settings)
        config._attn_implementation = "eager"
        return config, getattr(transformers, family.replace("Text", "") + "ForCausalLM")

    def model(self):
        config, model_class = self.config()
        with torch.device("meta"):
            model = model_class(config)
        model = model.to_empty(device="cpu").eval()
        tensors = {t.name: t for t in self.reader.tensors}
        state = {}
        for key in model.state_dict():
            if key == "lm_head.weight" and config.tie_word_embeddings:
                continue
            tensor = tensors.pop(name_of(key, self.architecture))
            value = gguf.dequantize(tensor.data, tensor.tensor_type)
            if self.architecture == "llama" and ("q_proj" in key or "k_proj" in key):
                heads = config.num_attention_heads if "q_proj" in key else config.num_key_value_heads
                value = separate(value, heads)
            if self.architecture == "gemma3" and "norm" in key:
                value = value - np.float32(1)
            state[key] = torch.from_numpy(np.ascontiguousarray(value))
        assert not tensors, sorted(tensors)
        model.load_state_dict(state, strict=False, assign=True)
        model.tie_weights()
        fill_buffers(model, model_class(shrunk(config)), config)
        return model

    def encode(self, text):
        if self.field("tokenizer.ggml.model") == "llama":
            return [self.field("tokenizer.ggml.bos_token_id")] + SentencePiece(
                self.field("tokenizer.ggml.tokens"), self.field("tokenizer.ggml.scores")).encode(text)
        return byte_level(self).encode(text).ids


def separate(rows, heads):
    """From pairs to halves: the inverse of gguf_writer.interleave."""
    shape = rows.shape
    return rows.reshape(heads, shape[0] // heads // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def shrunk(config):
    """The same ropes and scales on a network of no size."""
    small = type(config)(**(config.to_dict() | dict(vocab_size=8, num_hidden_layers=6, layer_types=None, intermediate_size=8,
                                                    pad_token_id=None)))
    return small


def fill_buffers(model, donor, config):
    """What is computed at construction (rope frequencies, embedding scale) is lost on the meta device."""
    buffers = dict(donor.named_buffers())
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
        assert torch.isfinite(buffer).all(), name
    for name, module in donor.named_modules():
        if hasattr(module, "original_inv_freq"):
            dict(model.named_modules())[name].original_inv_freq = module.original_inv_freq


def byte_level(model):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    tokens = model.field("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in model.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    if model.field("tokenizer.ggml.pre") == "smollm":
        steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:  # Qwen2's published pattern
        pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        steps = [pre_tokenizers.Split(Regex(pattern), "isolated"),
                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@torch.no_grad()
def continue_greedily(model, prompts):
    """Greedy continuations of all prompts in one batch, padded on the left."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    out, chosen = None, []
    for _ in range(GREEDY_TOKENS):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1]:]
        out = model(ids, attention_mask=mask, position_ids=positions, use_cache=True,
                    past_key_values=None if out is None else out.past_key_values)
        ids = out.logits[:, -1].argmax(1, keepdim=True)
        mask = torch.cat([mask, torch.ones_like(ids)], 1)
        chosen.append(ids)
    return torch.cat(chosen, 1).tolist()


def check_greedily(model, prompt, chosen):
    """The runner-ups and gaps of a continuation, from one pass over prompt and continuation without batch or padding. It
    must choose the same tokens."""
    logits = forward(model, prompt + chosen[:-1])[len(prompt) - 1:]
    order = np.argsort(-logits, axis=1)[:, :2]
    values = np.take_along_axis(logits, order, 1)
    assert order[:, 0].tolist() == chosen, "a tie even within FP32: choose another prompt"
    return order[:, 1].tolist(), (values[:, 0] - values[:, 1]).tolist()


def keep_rows(logits):
    """Compact logits: of every ROW_STEP-th position the largest, some others, and the log of the sum of exponentials."""
    generator = np.random.default_rng(1)
    rows = np.arange(ROW_STEP - 1, len(logits), ROW_STEP)
    tokens, values, sums = [], [], []
    for row in rows:
        order = np.argsort(-logits[row])
        chosen = np.concatenate([order[:TOP], generator.choice(order[TOP:], SAMPLED, replace=False)])
        tokens.append(chosen)
        values.append(logits[row][chosen])
        largest = logits[row].max()
        sums.append(largest + np.log(np.exp(logits[row] - largest).sum()))
    return {"rows": rows.astype(np.int32), "tokens": np.array(tokens, np.int32), "logits": np.array(values, np.float32),
            "log_sums": np.array(sums, np.float32), "best": logits.argmax(1).astype(np.int32),
            "gaps": np.diff(np.sort(np.partition(logits, -2)[:, -2:])).ravel().astype(np.float32)}


def make_all(models, data):
    data.mkdir(parents=True, exist_ok=True)
    for name, file in MODELS.items():
        if (data / f"{name}.logits.safetensors").exists():
            print(f"{name}: there already; remove its files to make them again")
            continue
        source = GgufModel(Path(models) / file)
        model = source.model()
        prompts = [source.encode(prompt) for prompt in PROMPTS]
        tokens = continue_greedily(model, prompts)
        seconds, gaps = zip(*(check_greedily(model, p, t) for p, t in zip(prompts, tokens)))
        save_file({"prompts": np.array(sum(prompts, []), np.int32), "lengths": np.array([len(p) for p in prompts], np.int32),
                   "tokens": np.array(tokens, np.int32), "seconds": np.array(seconds, np.int32),
                   "gaps": np.array(gaps, np.float32)}, data / f"{name}.greedy.safetensors")
        print(f"{name}: {len(PROMPTS)} continuations, smallest gap {np.min(gaps):.2e}", flush=True)

        ids = source.encode(LONG_TEXT)[:LONG_TOKENS]
        assert len(ids) == LONG_TOKENS, len(ids)
        logits, noise = forward_with_noise(model, ids)
        save_file({"ids": np.array(ids, np.int32), "noise": np.array([noise], np.float32)} | keep_rows(logits),
                  data / f"{name}.logits.safetensors")
        print(f"{name}: {len(ids)} tokens, logits of rms {logits.std():.2f}, FP32 noise {noise:.2e}", flush=True)
