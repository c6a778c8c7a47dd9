#!/usr/bin/env python3
"""Writes the seeds of fuzz/corpus/gguf, safetensors, model_folder and foreign_weights: small files, whole ones and one for
each kind of fault."""

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


def folder_of(config, index=b"", model=b"", second=b"", quantize_config=b"", metadata=b"", tokenizer=b"", job=b""):
    files = [config, index, model, second, quantize_config, metadata, tokenizer, job]
    while len(files) > 4 and not files[-1] and files[-1] != {}:
        files.pop()
    return b"h" + b"\n--8<--\n".join(file if isinstance(file, bytes) else json.dumps(file).encode() for file in files)


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
    yield from own_folder_seeds()
    yield from foreign_folder_seeds()


def own_folder_seeds():
    """Folders that `quintet quantize` writes."""
    def config_of(formats, **more):
        return {"quantization_config": {"quant_method": "quintet", "version": 1, "formats": formats, **more}}

    whole = config_of({"w": "int4_g128"})
    w, block = entry("U8", [2, 66], 0, 132), bytes(132)
    outliers = safetensors({"w": w, "w.outlier_rows": entry("U32", [3], 132, 144),
                            "w.outlier_columns": entry("U16", [1], 144, 146), "w.outlier_values": entry("F16", [1], 146, 148),
                            "norm": entry("F32", [2], 148, 156)},
                           block + struct.pack("<3IHe", 0, 0, 1, 5, 0.5) + bytes(8))
    yield "own", folder_of(whole, model=outliers)
    yield "own_metadata", folder_of(whole, model=outliers, metadata=gguf([key("general.architecture", STRING, "llama")]))
    yield "own_row_scales", folder_of(config_of({"w": "fp8"}), model=safetensors(
        {"w": entry("U8", [2, 32], 0, 64), "w.row_scales": entry("F32", [2], 64, 72)}, bytes(64) + struct.pack("<2f", 1, 2)))
    yield "own_width", folder_of(whole, model=safetensors({"w": entry("U8", [2, 65], 0, 130)}, bytes(130)))
    yield "own_empty", folder_of(whole, model=safetensors({"w": entry("U8", [0, 66], 0, 0)}))
    yield "own_few_rows", folder_of(whole, model=safetensors({"w": w, "w.outlier_rows": entry("U32", [1], 132, 136)}, bytes(136)))
    yield "own_no_columns", folder_of(whole, model=safetensors({"w": w, "w.outlier_rows": entry("U32", [3], 132, 144)}, bytes(144)))
    yield "own_columns", folder_of(whole, model=safetensors(
        {"w": w, "w.outlier_rows": entry("U32", [3], 132, 144), "w.outlier_columns": entry("F16", [1], 144, 146)}, bytes(146)))
    yield "own_missing", folder_of(config_of({"w": "int4_g128", "v": "q8_0"}), model=outliers)
    yield "own_format", folder_of(config_of({"w": "int5"}), model=outliers)
    yield "own_format_number", folder_of(config_of({"w": 5}), model=outliers)
    yield "own_version", folder_of(config_of({}, version=2), model=outliers)
    yield "own_no_version", folder_of(config_of({}, version=None), model=outliers)
    yield "own_no_model", folder_of(whole)


def foreign_folder_seeds():
    """Folders of other tools: only the way to foreign_weights, which has seeds of its own."""
    gptq = {"bits": 4, "group_size": 32, "sym": True}
    model = safetensors({"a.qweight": entry("I32", [4, 8], 0, 128), "a.qzeros": entry("I32", [1, 1], 128, 132),
                         "a.scales": entry("F16", [1, 8], 132, 148), "norm": entry("F32", [2], 148, 156)},
                        bytes(128) + b"\x77" * 4 + bytes(24))
    yield "gptq_whole", folder_of({"quantization_config": {"quant_method": "gptq", **gptq}}, model=model)
    yield "gptq_sidecar", folder_of({}, model=model, quantize_config=gptq)
    yield "gptq_indexed", folder_of({}, {"weight_map": {name: "model.safetensors" for name in ("a.qweight", "a.qzeros", "a.scales")}},
                                    model, quantize_config=gptq)
    yield "exl2", folder_of({}, model=model, job={})
    yield "tokenizer_alone", folder_of(b"", tokenizer={})
    yield "two_files", folder_of({}, second=model)
    yield "empty_shape", folder_of({}, model=safetensors({"a": entry("F32", [1 << 40, 1 << 40, 0], 0, 0)}))


def foreign(scheme, tensors, sidecar=b"", data=b"\x88"):
    """One input of foreign_weights_fuzz: tensors {name: (dtype, sizes...)}; data {name: bytes} or what all are filled with."""
    config = scheme if isinstance(scheme, bytes) else json.dumps({"quantization_config": scheme}).encode()
    lines = "\n".join(" ".join([name, *map(str, parts)]) for name, parts in tensors.items()).encode()
    if isinstance(data, dict):
        data = b"".join(data[name] for name in tensors)
    return b"\n--8<--\n".join((config, sidecar if isinstance(sidecar, bytes) else json.dumps(sidecar).encode(), lines, data))


def foreign_seeds():
    yield from scheme_seeds()
    yield from integer_seeds()
    yield from rows_seeds()
    yield from nf4_seeds()


def scheme_seeds():
    def group(weights, **more):
        return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {"weights": weights}}, **more}

    gptq = {"quant_method": "gptq"}
    schemes = {
        "dense": None, "list": [], "no_method": {}, "keys": {"bits": 4, "method": "x"}, "method": {"quant_method": "hqq"},
        "method_number": {"quant_method": 4}, "bits_text": {**gptq, "bits": "four"}, "bits_5": {**gptq, "bits": 5},
        "bits_list": {**gptq, "bits": [4]}, "group_20": {**gptq, "group_size": 20}, "sym_text": {**gptq, "sym": "yes"},
        "marlin": {**gptq, "checkpoint_format": "marlin"}, "awq_3": {"quant_method": "awq", "w_bit": 3},
        "awq_gemv": {"quant_method": "awq", "version": "gemv"}, "bnb_8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
        "bnb_fp4": {"quant_method": "bitsandbytes", "load_in_4bit": True}, "no_groups": {"quant_method": "compressed-tensors"},
        "no_weights": {"quant_method": "compressed-tensors", "config_groups": {"g": {}}},
        "strategy": group({"strategy": "block", "num_bits": 4}), "marlin_24": group({}, format="marlin-24"),
        "int_4": group({"num_bits": 4}, format="int-quantized"), "int_block": group({"strategy": "block"}, format="int-quantized"),
        "two_groups": {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
            "a": {"weights": {"strategy": "channel"}},
            "b": {"format": "pack-quantized", "weights": {"num_bits": 4, "strategy": "channel"}}}},
        "fp8_blocks": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    for name, scheme in schemes.items():
        yield f"scheme_{name}", foreign(scheme, {})
    yield "scheme_sidecar_list", foreign(b"{}", {}, b"[]")
    yield "scheme_sidecar_deep", foreign(b"{}", {}, b'{"bits":' + b"[" * 300 + b"]" * 300 + b"}")


def integer_seeds():
    """Codes under scales and zero points of groups: GPTQ, AWQ, compressed-tensors."""
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    parts = {"a.qweight": ("I32", 8, 8), "a.qzeros": ("I32", 2, 1), "a.scales": ("F16", 2, 8), "norm": ("F32", 3)}
    in_order = struct.pack("<64i", *(i // 32 for i in range(64)))
    mixed = struct.pack("<64i", *(i % 2 for i in range(64)))

    def with_groups(g_idx):
        return {**parts, "a.g_idx": ("I32", 64)}, {"a.qweight": bytes(range(256)), "a.qzeros": b"\x77" * 8, "a.scales": b"\x88" * 32,
                                                   "norm": bytes(12), "a.g_idx": g_idx}

    for name, g_idx in (("order", in_order), ("act_order", mixed), ("far_group", bytes(252) + b"\2\0\0\0"), ("unequal", bytes(256))):
        tensors, data = with_groups(g_idx)
        yield f"gptq_{name}", foreign(gptq, tensors, data=data)
    yield "gptq_asymmetric", foreign({**gptq, "sym": False, "checkpoint_format": "gptq_v2"}, parts)
    yield "gptq_not_symmetric", foreign(gptq, parts, data=b"\x31\x75")
    yield "gptq_3", foreign({**gptq, "bits": 3, "group_size": -1, "sym": False},
                            {"a.qweight": ("I32", 3, 32), "a.qzeros": ("I32", 1, 3), "a.scales": ("F32", 1, 32)})
    yield "gptq_8", foreign(b"{}", {"a.qweight": ("I32", 16, 4), "a.qzeros": ("I32", 1, 1), "a.scales": ("BF16", 1, 4)},
                            {"bits": 8, "group_size": 64}, b"\x7f")
    yield "gptq_no_zeros", foreign(gptq, {"a.qweight": ("I32", 8, 8)})
    yield "gptq_dtype", foreign(gptq, {**parts, "a.scales": ("I16", 2, 8)})
    yield "gptq_empty", foreign(gptq, {"a.qweight": ("I32", 1 << 60, 0)})
    yield "gptq_half_group", foreign({**gptq, "group_size": 128}, {**parts, "a.qzeros": ("I32", 0, 1), "a.scales": ("F16", 0, 8)})
    yield "gptq_half_word", foreign(gptq, {"a.qweight": ("I32", 4, 4), "a.qzeros": ("I32", 1, 0), "a.scales": ("F16", 1, 4)})
    yield "gptq_beside_dense", foreign(gptq, {**parts, "a.weight": ("F16", 8, 64)})
    awq = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
    parts = {"a.qweight": ("I32", 32, 1), "a.qzeros": ("I32", 1, 1), "a.scales": ("F16", 1, 8)}
    yield "awq", foreign(awq, parts)
    yield "awq_symmetric", foreign({**awq, "group_size": -1}, {name: part for name, part in parts.items() if name != "a.qzeros"})

    def packed(**weights):
        return {"quant_method": "compressed-tensors", "format": "pack-quantized",
                "config_groups": {"g": {"weights": {"num_bits": 4, "strategy": "group", "group_size": 32, **weights}}}}

    parts = {"a.weight_shape": ("I64", 2), "a.weight_packed": ("I32", 4, 8), "a.weight_scale": ("F16", 4, 2)}
    data = {"a.weight_shape": struct.pack("<2q", 4, 64), "a.weight_packed": bytes(128), "a.weight_scale": b"\x11" * 16,
            "a.weight_zero_point": b"\x21\x43" * 4, "a.weight_g_idx": bytes(256)}
    yield "packed", foreign(packed(), parts, data=data)
    yield "packed_zeros", foreign(packed(symmetric=False), {**parts, "a.weight_zero_point": ("I32", 1, 2)}, data=data)
    yield "packed_g_idx", foreign(packed(actorder="group"), {**parts, "a.weight_g_idx": ("I32", 64)}, data=data)
    yield "packed_channel", foreign(packed(strategy="channel"), {**parts, "a.weight_scale": ("F16", 4, 1), "a.weight_shape": ("I32", 2)},
                                    data={**data, "a.weight_shape": struct.pack("<2i", 4, 64), "a.weight_scale": bytes(8)})
    yield "packed_shape", foreign(packed(), parts, data={**data, "a.weight_shape": struct.pack("<2q", -1, 64)})


def rows_seeds():
    """E4M3 or bytes under scales of rows."""
    fp8 = {"quant_method": "fp8"}
    yield "fp8", foreign(fp8, {"a.weight": ("F8_E4M3", 2, 32), "a.weight_scale": ("F32",), "norm": ("F32", 1)}, data=b"\1\2\3\x3f")
    yield "fp8_rows", foreign(fp8, {"a.weight": ("F8_E4M3", 3, 64), "a.weight_scale": ("BF16", 3, 1), "a.input_scale": ("F32",)})
    yield "int8", foreign({"quant_method": "compressed-tensors", "format": "int-quantized",
                           "config_groups": {"g": {"weights": {"strategy": "channel"}}}},
                          {"a.weight": ("I8", 2, 32), "a.weight_scale": ("F16", 2)})
    yield "int8_zeros", foreign({"quant_method": "compressed-tensors", "format": "int-quantized",
                                 "config_groups": {"g": {"weights": {"strategy": "channel"}}}},
                                {"a.weight": ("I8", 2, 32), "a.weight_scale": ("F16", 2, 1), "a.weight_zero_point": ("I8", 2, 1)})
    yield "fp8_width", foreign(fp8, {"a.weight": ("F8_E4M3", 2, 31), "a.weight_scale": ("F32", 1)})
    yield "fp8_nan", foreign(fp8, {"a.weight": ("F8_E4M3", 2, 32), "a.weight_scale": ("F32", 1)}, data=b"\xff")


def nf4_seeds():
    """NF4 of bitsandbytes, scales of blocks in FP32 or in bytes again."""
    bnb = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    levels = struct.pack("<16f", -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                         -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                         0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
    mark = "a.weight.quant_state.bitsandbytes__nf4"

    def nf4(state, nested=False, levels=levels, **more):
        state = state if isinstance(state, bytes) else json.dumps(state).encode()
        tensors = {mark: ("U8", len(state)), "a.weight": ("U8", 64, 1), "a.weight.quant_map": ("F32", 16),
                   "a.weight.absmax": ("U8" if nested else "F32", 2)}
        data = {mark: state, "a.weight": bytes(range(64)), "a.weight.quant_map": levels,
                "a.weight.absmax": b"\1\2" if nested else struct.pack("<2f", 1, 2), "a.weight.nested_absmax": struct.pack("<f", 1),
                "a.weight.nested_quant_map": bytes(1024)}
        if nested:
            tensors |= {"a.weight.nested_absmax": ("F32", 1), "a.weight.nested_quant_map": ("F32", 256)}
        return foreign(bnb, {**tensors, **more}, data=data)

    state = {"shape": [2, 64], "blocksize": 64}
    yield "nf4", nf4(state)
    yield "nf4_nested", nf4({**state, "nested_blocksize": 256, "nested_offset": 0.5}, nested=True)
    yield "nf4_no_shape", nf4({"shape": [2]})
    yield "nf4_no_json", nf4(b"shape")
    yield "nf4_large", nf4({"shape": [2, 1 << 40]})
    yield "nf4_block", nf4({**state, "blocksize": (1 << 63) - 64})
    yield "nf4_block_text", nf4({**state, "blocksize": "64"})
    yield "nf4_nested_block", nf4({**state, "nested_blocksize": (1 << 63) - 1}, nested=True)
    yield "nf4_width", nf4({"shape": [4, 32]})
    yield "nf4_levels", nf4(state, levels=bytes(64))
    yield "nf4_deep", nf4(b'{"shape":' + b"[" * 300 + b"]" * 300 + b"}")
    yield "nf4_long_state", foreign(bnb, {mark: ("U8", 65537)})


def main():
    for name, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds()), ("model_folder", folder_seeds()),
                        ("foreign_weights", foreign_seeds())):
        folder = os.path.join(ROOT, "fuzz", "corpus", name)
        os.makedirs(folder, exist_ok=True)
        for seed, content in seeds:
            with open(os.path.join(folder, seed), "wb") as file:
                file.write(content)


if __name__ == "__main__":
    main()
