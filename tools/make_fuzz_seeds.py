#!/usr/bin/env python3
"""Writes the seeds of fuzz/corpus/gguf, safetensors and model_folder: small files, whole ones and one for each kind of fault."""

import json
import os
import struct

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def element(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        inner, values = value
        return struct.pack("<IQ", inner, len(values)) + b"".join(element(inner, v) for v in values)
    return struct.pack("<" + PACK[kind], value)


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + element(kind, value)


def tensor(name, dims, kind, offset):
    return text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)


def gguf(keys, tensors=(), data=b"", version=3, magic=b"GGUF", alignment=32, counts=None):
    tensor_count, key_count = counts or (len(tensors), len(keys))
    head = magic + struct.pack("<IQQ", version, tensor_count, key_count) + b"".join(keys) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + data


def gguf_seeds():
    every = [
        key("general.architecture", STRING, "llama"), key("u8", U8, 200), key("i8", I8, -3), key("u16", U16, 65535),
        key("i16", I16, -300), key("u32", U32, 1 << 31), key("i32", I32, -1), key("f32", F32, 1e-5), key("yes", BOOL, 1),
        key("odd", BOOL, 7), key("u64", U64, 1 << 63), key("i64", I64, -1), key("f64", F64, 0.5),
        key("name", STRING, b"caf\xc3\xa9 \xf0\x9f\x99\x82 \xff\x01 line\n \xe2\x82\xac \xc0\x80 \xed\xa0\x80 " + b"x" * 90),
        key("tokens", ARRAY, (STRING, ["a", "", "\u0120t"])), key("scores", ARRAY, (F32, [0.0, -1.5])),
        key("doubles", ARRAY, (F64, [0.25])), key("types", ARRAY, (I32, list(range(-5, 6)))),
        key("big", ARRAY, (U64, [1, 1 << 63])), key("flags", ARRAY, (BOOL, [0, 1])), key("bad flags", ARRAY, (BOOL, [0, 2])),
        key("bytes", ARRAY, (U8, [1, 2, 3])), key("none", ARRAY, (I16, [])),
        key("nested", ARRAY, (ARRAY, [(U8, [1]), (ARRAY, [(STRING, ["deep"])])])), key("general.alignment", U32, 64),
    ]
    tensors = [tensor("token_embd.weight", [32, 2], 8, 0), tensor("norm", [5], 0, 128), tensor("cube", [4, 3, 2], 1, 192)]
    data = bytes(range(240))
    small = [key("general.architecture", STRING, "llama")]
    one = [tensor("w", [32], 2, 0)]
    block = bytes(18)
    deep = (U8, [1])
    for _ in range(6):
        deep = (ARRAY, [deep])
    yield "every_type", gguf(every, tensors, data, alignment=64)
    yield "version_2", gguf(small, one, block, version=2)
    yield "vocabulary_only", gguf(small)
    yield "empty", b""
    yield "magic_alone", b"GGUF"
    yield "legacy", b"tjgg" + bytes(20)
    yield "big_endian_magic", b"FUGG" + bytes(20)
    yield "big_endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    yield "version_1", gguf(small, version=1)
    yield "wrong_magic", gguf(small, magic=b"GGUX")
    yield "many_keys", gguf(small, counts=(0, 1 << 60))
    yield "many_tensors", gguf(small, counts=(1 << 60, 1))
    yield "cut_key", gguf(small)[:30]
    yield "cut_value", gguf([key("k", U64, 1)])[:40]
    yield "long_key", b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62) + bytes(64)
    yield "empty_key", gguf([key("", U8, 1), key("k", U8, 1)])
    yield "twice_key", gguf([key("k", U8, 1), key("k", U8, 2)])
    yield "value_type", gguf([text("k") + struct.pack("<I", 13) + bytes(16)])
    yield "element_type", gguf([text("k") + struct.pack("<IIQ", ARRAY, 99, 1) + bytes(16)])
    yield "array_count", gguf([text("k") + struct.pack("<IIQ", ARRAY, U64, 1 << 61) + bytes(16)])
    yield "array_strings", gguf([text("k") + struct.pack("<IIQQ", ARRAY, STRING, 2, 1 << 40) + bytes(32)])
    yield "deep_array", gguf([key("k", ARRAY, deep)])
    yield "alignment_3", gguf([key("general.alignment", U32, 3)])
    yield "alignment_text", gguf([key("general.alignment", STRING, "32")])
    yield "no_dimensions", gguf(small, [tensor("w", [], 0, 0) + bytes(8)], bytes(64))
    yield "five_dimensions", gguf(small, [tensor("w", [1] * 5, 0, 0)], bytes(64))
    yield "zero_dimension", gguf(small, [tensor("w", [0, 4], 0, 0)], bytes(64))
    yield "huge_dimension", gguf(small, [tensor("w", [1 << 40, 1 << 40], 0, 0)], bytes(64))
    yield "huge_bytes", gguf(small, [tensor("w", [1 << 62], 0, 0)], bytes(64))
    yield "known_type", gguf(small, [tensor("w", [256], 39, 0)], bytes(64))
    yield "unknown_type", gguf(small, [tensor("w", [256], 999, 0)], bytes(64))
    yield "part_of_block", gguf(small, [tensor("w", [33], 2, 0)], bytes(64))
    yield "odd_offset", gguf(small, [tensor("w", [32], 2, 5)], bytes(64))
    yield "far_offset", gguf(small, [tensor("w", [32], 2, 1 << 40)], bytes(64))
    yield "past_end", gguf(small, [tensor("w", [32, 9], 2, 0)], bytes(64))
    yield "overlap", gguf(small, [tensor("a", [64], 2, 0), tensor("b", [32], 2, 32)], bytes(96))
    yield "twice_tensor", gguf(small, [tensor("a", [32], 2, 0), tensor("a", [32], 2, 32)], bytes(96))


def safetensors(header, data=b"", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype, shape, begin, end, **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def safetensors_seeds():
    yield "whole", safetensors({"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 3], 0, 24),
                                "b": entry("BF16", [4], 24, 32), "none": entry("I8", [0, 9], 32, 32),
                                "scalar": entry("F16", [], 32, 34)}, bytes(34))
    yield "nothing", safetensors({})
    yield "padded", safetensors(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}     ', b"x")
    yield "short", b"\1\0\0"
    yield "length", safetensors({}, length=1 << 62)
    yield "tiny_length", safetensors({}, length=1)
    yield "no_brace", safetensors(b"[]")
    yield "syntax", safetensors(b'{"a":{"dtype":"F32",}}')
    yield "bad_utf8", safetensors(b'{"\xff":1}')
    yield "deep", safetensors(b'{"a":' + b"[" * 50 + b"]" * 50 + b"}")
    yield "metadata_number", safetensors({"__metadata__": 5})
    yield "metadata_list", safetensors({"__metadata__": {"a": [1]}})
    yield "tensor_number", safetensors({"a": 5})
    yield "tensor_list", safetensors({"a": [{}]})
    yield "empty_name", safetensors({"": entry("F32", [1], 0, 4)}, bytes(4))
    yield "no_dtype", safetensors({"a": {"shape": [], "data_offsets": [0, 1]}}, b"x")
    yield "no_shape", safetensors({"a": {"dtype": "U8", "data_offsets": [0, 1]}}, b"x")
    yield "no_offsets", safetensors({"a": {"dtype": "U8", "shape": []}}, b"x")
    yield "three_offsets", safetensors({"a": {"dtype": "U8", "shape": [], "data_offsets": [0, 1, 2]}}, b"x")
    yield "one_offset", safetensors({"a": {"dtype": "U8", "shape": [], "data_offsets": [0]}}, b"x")
    yield "dtype_number", safetensors({"a": entry(5, [1], 0, 4)}, bytes(4))
    yield "dtype_unknown", safetensors({"a": entry("F13", [1], 0, 4)}, bytes(4))
    yield "dtype_twice", safetensors(b'{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")
    yield "shape_twice", safetensors(b'{"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}}', b"x")
    yield "shape_null", safetensors({"a": entry("U8", None, 0, 1)}, b"x")
    yield "shape_true", safetensors({"a": entry("U8", [True], 0, 1)}, b"x")
    yield "shape_nested", safetensors({"a": entry("U8", [[1]], 0, 1)}, b"x")
    yield "shape_negative", safetensors({"a": entry("U8", [-1], 0, 1)}, b"x")
    yield "shape_fraction", safetensors({"a": entry("U8", [1.5], 0, 1)}, b"x")
    yield "shape_huge", safetensors({"a": entry("U8", [1 << 63], 0, 1)}, b"x")
    yield "shape_product", safetensors({"a": entry("F32", [1 << 40, 1 << 40], 0, 4)}, bytes(4))
    yield "shape_long", safetensors({"a": entry("U8", [1] * 9, 0, 1)}, b"x")
    yield "other_key", safetensors({"a": entry("U8", [1], 0, 1, more=1)}, b"x")
    yield "reversed", safetensors({"a": entry("U8", [1], 1, 0)}, b"x")
    yield "past_end", safetensors({"a": entry("U8", [9], 0, 9)}, b"x")
    yield "hole", safetensors({"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 2, 3)}, b"xyz")
    yield "overlap", safetensors({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"xyz")
    yield "size", safetensors({"a": entry("F32", [2], 0, 4)}, bytes(4))
    yield "rest", safetensors({"a": entry("U8", [1], 0, 1)}, b"xyz")
    yield "twice", safetensors(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                               b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"xy")


def folder_of(config, index=b"", model=b"", second=b""):
    texts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (config, index)]
    return b"h" + b"\n--8<--\n".join([*texts, model, second])


def split_of(*parts):
    return b"g" + b"\n--8<--\n".join(parts)


def split_part(number, count, tensors=(), data=b"", **more):
    keys = [key("split.no", U16, number), key("split.count", U16, count)]
    return gguf(keys + [key(name, I32, value) for name, value in more.items()], tensors, data)


def folder_seeds():
    config = {"model_type": "llama", "vision_config": None}
    two = safetensors({"a": entry("F16", [2, 3], 0, 12), "b": entry("F32", [5], 12, 32)}, bytes(32))
    one = safetensors({"a": entry("BF16", [4], 0, 8)}, bytes(8))
    name = "model.safetensors"
    yield "single", folder_of(config, model=two)
    yield "indexed", folder_of(config, {"metadata": {"total_size": 40}, "weight_map": {"a": "model-2.safetensors", "b": name}}, two, one)
    yield "no_weights", folder_of(config)
    yield "no_config", folder_of(b"", model=two)
    yield "gptq", folder_of({"quantization_config": {"bits": 4, "quant_method": "gptq"}}, model=two)
    yield "bits", folder_of({"quantization": {"bits": 4}}, model=two)
    yield "vision", folder_of({"vision_config": {"layers": 2}}, model=two)
    yield "config_list", folder_of(b"[]", model=two)
    yield "float8", folder_of(config, model=safetensors({"w": entry("F8_E4M3", [4], 0, 4)}, bytes(4)))
    yield "counter", folder_of(config, model=safetensors({"w": entry("I64", [], 0, 8), "s": entry("F32", [], 8, 12)}, bytes(12)))
    yield "visual", folder_of(config, model=safetensors({"visual.w": entry("F16", [4], 0, 8)}, bytes(8)))
    yield "index_missing", folder_of(config, {"weight_map": {"a": "gone.safetensors"}}, two)
    yield "index_tensor", folder_of(config, {"weight_map": {"c": name}}, two)
    yield "index_path", folder_of(config, {"weight_map": {"a": "../x.safetensors"}}, two)
    yield "index_number", folder_of(config, {"weight_map": {"a": 1}}, two)
    yield "index_list", folder_of(config, {"weight_map": []}, two)
    yield "index_root", folder_of(config, b"[]", two)
    yield "index_none", folder_of(config, {"metadata": {}}, two)
    yield "index_twice", folder_of(config, b'{"weight_map":{"a":"%s","a":"%s"}}' % (name.encode(), name.encode()), two)
    a, b = tensor("a", [8], 0, 0), tensor("b", [8], 0, 0)
    yield "split", split_of(split_part(0, 2, [a], bytes(32), **{"split.tensors.count": 2}), split_part(1, 2, [b], bytes(32)))
    yield "split_count", split_of(split_part(0, 2, [a], bytes(32), **{"split.tensors.count": 5}), split_part(1, 2, [b], bytes(32)))
    yield "split_twice", split_of(split_part(0, 2, [a], bytes(32)), split_part(1, 2, [a], bytes(32)))
    yield "split_order", split_of(split_part(0, 2, [a], bytes(32)), split_part(0, 2, [b], bytes(32)))
    yield "split_missing", split_of(split_part(0, 2, [a], bytes(32)))
    yield "whole_gguf", split_of(gguf([key("general.type", STRING, "model")], [a], bytes(32)))
    yield "projector", split_of(gguf([key("general.architecture", STRING, "clip")]))
    yield "adapter", split_of(gguf([key("general.type", STRING, "adapter")]))
    yield "pickle", split_of(b"PK\3\4" + bytes(20))
    yield "page", split_of(b"<!DOCTYPE html>")
    yield "two_models", b"g" + b"\n--8<--\n" * 7


def main():
    for name, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds()), ("model_folder", folder_seeds())):
        folder = os.path.join(ROOT, "fuzz", "corpus", name)
        os.makedirs(folder, exist_ok=True)
        for seed, content in seeds:
            with open(os.path.join(folder, seed), "wb") as file:
                file.write(content)


if __name__ == "__main__":
    main()
