#!/usr/bin/env python3
"""Writes fuzz/corpus/tokenizer_json: small files that Hugging Face tokenizers itself writes, and spoilt variants of them.

Run with .venv/bin/python; the files are committed.
"""
import base64
import copy
import json
import pathlib
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

FOLDER = pathlib.Path(__file__).parent.parent / "fuzz/corpus/tokenizer_json"
MARK = "\u2581"


def framed(tokenizer, name, number):
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{name} $A", pair=f"{name} $A $B", special_tokens=[(name, number)])
    return tokenizer


def byte_level(steps, normalizer=None, ignore_merges=False):
    letters = list("abcrelst1") + ["\u0120", "\u010a", "\u00c3", "\u00a9", "'"]
    merges = [("a", "b"), ("\u0120", "a"), ("\u00c3", "\u00a9"), ("l", "l"), ("'", "ll"), ("\u0120", "\u0120")]
    vocab = {token: i for i, token in enumerate(letters + [left + right for left, right in merges])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens(["<s>", AddedToken("</s>", rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("<b>", single_word=True), AddedToken("ab", lstrip=True, normalized=True)])
    return framed(tokenizer, "<s>", tokenizer.token_to_id("<s>"))


def sentencepiece():
    vocab = {"<unk>": 0, **{f"<0x{i:02X}>": i + 1 for i in range(256)}}
    for token in [MARK, "a", "b", "ab", MARK + "a", MARK + MARK]:
        vocab[token] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b"), (MARK, "a"), (MARK, MARK)], unk_token="<unk>",
                                     fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>"])
    return framed(tokenizer, "<s>", tokenizer.token_to_id("<s>"))


def unigram(pre_tokenizer):
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), (MARK, -2.0), ("a", -3.0), (MARK + "a", -1.5), ("b", -4.25), ("e\u0301", -5.0)], 0, False))
    # A double array with one entry, "a" -> "b": unit 0 leads to 0x61 ^ offset.
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), MARK)])
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>"])
    return tokenizer


def charsmap():
    # Units of Darts: label, leaf bit (8), offset from bit 10. "a" (0x61) becomes "b".
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ 0x61] = 0x61 | 1 << 8 | (0x20 << 10)
    units[256 ^ 0x61 ^ 0x20] = 0x80000000
    return base64.b64encode(struct.pack("<I512I", 2048, *units) + b"b\0").decode()


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()

    def save(name, value):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        (FOLDER / name).write_text(text)

    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split
    good = {
        "gpt2": byte_level([gpt2]),
        "prefix": byte_level([pre_tokenizers.ByteLevel(add_prefix_space=True)], normalizers.NFC()),
        "llama3": byte_level([split(Regex(r"(?i:'s|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"), "isolated"), plain], ignore_merges=True),
        "steps": byte_level([split(Regex(r"\s+$"), "removed"), split("1", "merged_with_next", invert=True), split("e", "merged_with_previous"),
                             pre_tokenizers.Digits(True), pre_tokenizers.Punctuation("contiguous"), gpt2, pre_tokenizers.Digits(False)],
                            normalizers.Sequence([normalizers.NFD(), normalizers.NFKD(), normalizers.Lowercase()])),
        "sentencepiece": sentencepiece(),
        "unigram": unigram(pre_tokenizers.Metaspace()),
        "unigram_words": unigram(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")])),
        "whitespace": unigram(pre_tokenizers.Whitespace()),
    }
    good = {name: json.loads(tokenizer.to_str()) for name, tokenizer in good.items()}
    for name, value in good.items():
        save(name, value)

    def spoil(name, source, change):
        value = copy.deepcopy(good[source])
        change(value)
        save(name, value)

    def put(*path):
        *way, last, new = path

        def change(value):
            for key in way:
                value = value[key]
            value[last] = new

        return change

    spoil("old_merges", "gpt2", lambda v: v["model"].update(merges=[" ".join(m) for m in v["model"]["merges"]]))
    spoil("precompiled", "unigram", put("normalizer", {"type": "Precompiled", "precompiled_charsmap": charsmap()}))
    spoil("bad_base64", "unigram", put("normalizer", {"type": "Precompiled", "precompiled_charsmap": "A*=="}))
    spoil("roberta", "gpt2", put("post_processor", {"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["b", 1]}))
    spoil("processors", "gpt2", lambda v: v.update(post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel"}, v["post_processor"]]}))
    spoil("two_frames", "gpt2", lambda v: v["post_processor"]["single"].append(v["post_processor"]["single"][0]))
    spoil("no_type", "gpt2", lambda v: v["model"].pop("type"))
    spoil("word_piece", "gpt2", put("model", "type", "WordPiece"))
    spoil("dropout", "gpt2", put("model", "dropout", 0.5))
    spoil("suffix", "gpt2", put("model", "end_of_word_suffix", "</w>"))
    spoil("missing_token", "gpt2", lambda v: v["model"]["vocab"].pop("ab"))
    spoil("same_id", "gpt2", put("model", "vocab", "a", 1))
    spoil("big_id", "gpt2", put("model", "vocab", "a", 2**40))
    spoil("text_id", "gpt2", put("model", "vocab", "a", "x"))
    spoil("twice", "gpt2", lambda v: v["model"]["merges"].append(["a", "b"]))
    spoil("empty_part", "gpt2", lambda v: v["model"]["merges"].append(["", "b"]))
    spoil("mixed_merges", "gpt2", lambda v: v["model"]["merges"].append("a b"))
    spoil("merge_number", "gpt2", lambda v: v["model"]["merges"].append([1, 2]))
    spoil("merge_of_one", "gpt2", lambda v: v["model"]["merges"].append(["a"]))
    spoil("special_merge", "gpt2", lambda v: v["model"]["vocab"].update({"<s>": v["added_tokens"][0]["id"]}))
    spoil("unknown", "gpt2", put("model", "unk_token", "ab"))
    spoil("no_unknown", "gpt2", put("model", "unk_token", "<x>"))
    spoil("added_id", "gpt2", put("added_tokens", 0, "id", 99))
    spoil("added_text", "gpt2", put("added_tokens", 0, "content", "a"))
    spoil("added_flag", "gpt2", put("added_tokens", 0, "special", 1))
    spoil("decoder", "gpt2", put("decoder", {"type": "WordPiece"}))
    spoil("strip", "sentencepiece", put("decoder", "decoders", 3, "content", "x"))
    spoil("pattern", "gpt2", put("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a)\\1"}}))
    spoil("behavior", "gpt2", put("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "x"}))
    spoil("no_bytes", "gpt2", put("pre_tokenizer", None))
    spoil("bert", "gpt2", put("pre_tokenizer", {"type": "BertPreTokenizer"}))
    spoil("scheme", "unigram", put("pre_tokenizer", {"type": "Metaspace", "prepend_scheme": "x"}))
    spoil("old_metaspace", "unigram", put("pre_tokenizer", {"type": "Metaspace", "add_prefix_space": False}))
    spoil("unk_id", "unigram", put("model", "unk_id", 99))
    spoil("scores", "unigram", put("model", "vocab", [["a", -1], ["b"]]))
    spoil("integer_score", "unigram", put("model", "vocab", 2, ["a", -1]))
    spoil("list_of_texts", "unigram", put("model", "vocab", ["a"]))
    spoil("unigram_bytes", "unigram", put("pre_tokenizer", {"type": "ByteLevel"}))
    save("deep", '{"a":' * 40)
    save("cut", json.dumps(good["gpt2"])[:900])
    save("list", "[1, 2.5, null, true]")


if __name__ == "__main__":
    main()
