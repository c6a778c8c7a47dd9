"""The tiny models' tokenizer: 256 bytes, a few special tokens and one merge, so that a whole model can be loaded."""

import json

FOLDERS = ("llama3", "qwen2")  # the folders that get one
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
VOCABULARY = 272  # more than there are tokens: rows of padding
TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"


def byte_letters():
    """GPT-2's printable letter for each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in kept else chr(next(others)) for b in range(256)]


def tokens():
    return byte_letters() + SPECIAL + ["ab"]


def save(folder):
    added = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(SPECIAL)]
    spec = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {text: i for i, text in enumerate(byte_letters())} | {"ab": 260}, "merges": [["a", "b"]]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False))
    config = {"bos_token": "<|begin|>", "eos_token": {"content": "<|end|>"}, "add_bos_token": True,
              "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    generation = {"eos_token_id": [257, 259], "do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
                  "repetition_penalty": 1.05}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1))
