"""Decodes weight blocks with the PyPI package `gguf`, the reference that src/quant's codecs equal bit for bit.

    reference_decode.py random --seed 1 --blocks 8      random, extreme and grid-covering blocks of every format
    reference_decode.py model FILE --rows 3 --seed 1    sampled rows of every tensor of a real file

Writes records to stdout, all numbers little-endian.
random: name as 16 bytes, u32 GGUF type, u32 weights and u32 bytes a block, u32 blocks, then bytes and float32 values.
model: u32 length and bytes of the tensor's name, u64 row, u64 values, then float32 values.
The committed tests/quant/data/codecs.bin is `random --seed 1 --blocks 6`.
"""
import argparse
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType as T, GGUFReader, GGUFValueType, quants
from gguf.constants import GGML_QUANT_SIZES

FORMATS = (
    "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K "
    "IQ4_NL IQ4_XS IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S"
).split()

# Byte offsets of the half-precision scales in a block: these decide whether a value is finite.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "IQ2_XXS": [0], "IQ2_XS": [0],
    "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0],
}
# Zero, negative zero, least and greatest subnormal and normal halves, one and its neighbours, either sign of the largest.
EXTREME_HALVES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3BFF, 0x3C00, 0x3C01, 0x7BFF, 0xFBFF]


def dequantize(raw, kind):
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(quants.dequantize(raw, kind), dtype=np.float32)


def put_half(block, offset, bits):
    block[offset] = bits & 255
    block[offset + 1] = bits >> 8


def grid_sweep(name, size, rng):
    """Blocks that together use every index of the format's grid."""
    count = {"IQ2_XXS": 8, "IQ2_XS": 16, "IQ2_S": 32, "IQ3_XXS": 4, "IQ3_S": 8}.get(name, 0)
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for i, block in enumerate(blocks):
        put_half(block, 0, 0x3555)
        if name == "IQ2_XXS":
            for group in range(8):
                block[2 + 8 * group : 6 + 8 * group] = np.arange(i * 32 + group * 4, i * 32 + group * 4 + 4)
        elif name == "IQ2_XS":
            signs = rng.integers(0, 128, 32).astype(np.uint16) << 9
            block[2:66] = (np.arange(i * 32, i * 32 + 32).astype(np.uint16) | signs).view(np.uint8)
        elif name == "IQ2_S":
            index = np.arange(i * 32, i * 32 + 32)
            block[2:34] = index & 255
            for byte in range(8):
                block[66 + byte] = sum(int(index[4 * byte + j] >> 8) << (2 * j) for j in range(4))
        elif name == "IQ3_XXS":
            block[2:66] = np.arange(i * 64, i * 64 + 64)
        elif name == "IQ3_S":
            index = np.arange(i * 64, i * 64 + 64)
            block[2:66] = index & 255
            for byte in range(8):
                block[66 + byte] = sum(int(index[8 * byte + j] >> 8) << j for j in range(8))
    return blocks


def make_blocks(name, size, count, rng):
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if name in ("F32", "F16", "BF16"):
        if name != "F32":
            every = np.arange(65536, dtype=np.uint16) if count > 1000 else np.array(EXTREME_HALVES, dtype=np.uint16)
            blocks = np.concatenate([blocks, every.view(np.uint8).reshape(-1, 2)])
        return blocks
    offsets = SCALES[name]
    for block in blocks[: count // 2]:  # scales as trained weights have them; the other half stays anything
        for offset in offsets:
            put_half(block, offset, int(np.float16(rng.normal() * 0.01).view(np.uint16)))
    for block in blocks:  # small runs are committed and compared as they are: no NaN, no infinity
        for offset in offsets:
            if count <= 1000 and (block[offset + 1] & 0x7C) == 0x7C:
                block[offset + 1] &= 0xBB
    extreme = rng.integers(0, 256, (len(EXTREME_HALVES), size), dtype=np.uint8)
    for block, bits in zip(extreme, EXTREME_HALVES):
        for offset in offsets:
            put_half(block, offset, bits)
    filled = np.stack([np.full(size, byte, dtype=np.uint8) for byte in (0, 255)])
    for block in filled:
        for offset in offsets:
            put_half(block, offset, 0x3C00)
    return np.concatenate([blocks, extreme, filled, grid_sweep(name, size, rng)])


def random_records(seed, count):
    for name in FORMATS:
        rng = np.random.default_rng([seed, FORMATS.index(name)])
        weights, size = GGML_QUANT_SIZES[T[name]]
        blocks = make_blocks(name, size, count, rng)
        values = dequantize(blocks, T[name])
        sys.stdout.buffer.write(struct.pack("<16s4I", name.lower().encode(), int(T[name]), weights, size, len(blocks)))
        sys.stdout.buffer.write(blocks.tobytes())
        sys.stdout.buffer.write(values.tobytes())


class QuickReader(GGUFReader):
    """The package's reader, but it steps over arrays (a vocabulary takes it half a minute element by element)."""

    def _get_field_parts(self, orig_offs, raw_type):
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        raw = self.data.data
        kind, count = struct.unpack_from("<IQ", raw, orig_offs)
        at = orig_offs + 12
        if kind == GGUFValueType.STRING:
            for _ in range(count):
                at += 8 + struct.unpack_from("<Q", raw, at)[0]
        else:
            at += count * np.dtype(self.gguf_scalar_to_np[GGUFValueType(kind)]).itemsize
        return at - orig_offs, [], [], [GGUFValueType.ARRAY]


def model_records(path, rows, seed):
    rng = np.random.default_rng(seed)
    for tensor in QuickReader(path).tensors:
        data = tensor.data.reshape(-1, tensor.data.shape[-1])
        count = len(data)
        for row in sorted({0, count - 1, *rng.integers(0, count, rows).tolist()}):
            raw = np.ascontiguousarray(data[row : row + 1]).view(np.uint8)
            values = dequantize(raw, tensor.tensor_type).reshape(-1)
            name = tensor.name.encode()
            sys.stdout.buffer.write(struct.pack("<I", len(name)) + name + struct.pack("<QQ", row, len(values)))
            sys.stdout.buffer.write(values.tobytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["random", "model"])
    parser.add_argument("file", nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--rows", type=int, default=2)
    args = parser.parse_args()
    if args.mode == "random":
        random_records(args.seed, args.blocks)
    else:
        model_records(args.file, args.rows, args.seed)


if __name__ == "__main__":
    main()
