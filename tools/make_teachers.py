"""Makes the models that weight compression is judged against, as F16 GGUF files.

    make_teachers.py [--models DIR] [--out DIR] [a] [b] [c]

a  gemma-3-270m-f16.gguf         Gemma 3 270M, dequantized (its file keeps 5 to 8 bits)
b  smollm2-135m-noise-f16.gguf   SmolLM2 135M plus uniform noise of one quantization step on its linear weights, seeded:
                                 its file lies on a 4-bit grid of blocks of 32, which flatters every method with such a grid
c  qwen2.5-coder-0.5b-f16.gguf   Qwen2.5-Coder 0.5B, dequantized (4.5 to 8 bits)

Tokenizer, template and all other metadata are copied byte for byte; only general.file_type changes. Vectors become F32,
matrices F16. Files are written under another name and renamed; existing ones are kept. Needs the tests' environment
(make venv); run with .venv/bin/python.
"""
import argparse
import os
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T, quants
from gguf.constants import GGML_QUANT_SIZES

TEACHERS = {
    "a": ("gemma-3-270m.Q4_K_M.gguf", "gemma-3-270m-f16.gguf", 0.0),
    "b": ("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-noise-f16.gguf", 1.0),
    "c": ("qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf", "qwen2.5-coder-0.5b-f16.gguf", 0.0),
}
SEED = 20261129
FILE_TYPE_F16 = 1
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Header:
    """The header of a GGUF v3 file: where its metadata lies, and its tensors."""

    def __init__(self, data):
        self.data, self.at = data, 0
        if data[:4] != b"GGUF" or self.take("<4xI") != 3:
            sys.exit("found another file, allowed is GGUF version 3")
        tensors, values = self.take("<Q"), self.take("<Q")
        begin, self.values, self.file_type_at, self.alignment = self.at, values, None, 32
        for _ in range(values):
            self.value(begin)
        self.metadata = bytearray(data[begin:self.at])
        infos = [self.tensor() for _ in range(tensors)]
        start = -(-self.at // self.alignment) * self.alignment
        self.tensors = [(name, shape, T(kind), start + offset) for name, shape, kind, offset in infos]

    def take(self, layout):
        value = struct.unpack_from(layout, self.data, self.at)[0]
        self.at += struct.calcsize(layout)
        return value

    def string(self):
        length = self.take("<Q")
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def value(self, begin):
        key, kind = self.string(), self.take("<I")
        if key == b"general.file_type":
            self.file_type_at = self.at - begin
        if key == b"general.alignment":
            self.alignment = struct.unpack_from("<I", self.data, self.at)[0]
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, count = self.take("<I"), self.take("<Q")
            if element == STRING:
                for _ in range(count):
                    self.string()
            else:
                self.at += SIZES[element] * count
        else:
            self.at += SIZES[kind]

    def tensor(self):
        name = self.string()
        shape = [self.take("<Q") for _ in range(self.take("<I"))]  # the length of a row first
        return name, shape, self.take("<I"), self.take("<Q")


def step_of(blocks, kind):
    """The distance between neighbouring values of each weight's block."""
    if kind != T.Q4_1:
        sys.exit(f"found a {kind.name} tensor to put noise on, allowed is Q4_1")
    step = np.abs(blocks[:, :2].copy().view(np.float16).astype(np.float32))
    return np.repeat(step, 32, axis=1)


def values_of(data, tensor, noise, rng):
    name, shape, kind, offset = tensor
    count = int(np.prod(shape))
    block, size = GGML_QUANT_SIZES[kind]
    raw = np.frombuffer(data, np.uint8, count // block * size, offset)
    values = quants.dequantize(raw.reshape(-1, size), kind).reshape(-1).astype(np.float32)
    if noise and len(shape) == 2 and name.startswith(b"blk."):
        step = step_of(raw.reshape(-1, size), kind).reshape(-1)
        values = values + noise * step * rng.uniform(-0.5, 0.5, count).astype(np.float32)
    return values.astype(np.float32 if len(shape) == 1 else np.float16)


def write(source, target, noise):
    data = np.memmap(source, np.uint8, "r").data
    header = Header(data)
    if header.file_type_at is not None:
        struct.pack_into("<I", header.metadata, header.file_type_at, FILE_TYPE_F16)
    infos, offset = bytearray(), 0
    for name, shape, _, _ in header.tensors:
        kind = T.F32 if len(shape) == 1 else T.F16
        infos += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        infos += struct.pack("<IQ", kind, offset)
        bytes_of = int(np.prod(shape)) * (4 if kind == T.F32 else 2)
        offset += -(-bytes_of // header.alignment) * header.alignment
    rng = np.random.default_rng(SEED)
    partial = target.with_name(f"{target.name}.partial.{os.getpid()}")
    with open(partial, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(header.tensors), header.values))
        file.write(header.metadata + infos)
        file.write(b"\0" * (-file.tell() % header.alignment))
        for tensor in header.tensors:
            file.write(values_of(data, tensor, noise, rng).tobytes())
            file.write(b"\0" * (-file.tell() % header.alignment))
    partial.rename(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teachers", nargs="*", choices=[[], *TEACHERS], help="which (default: all)")
    parser.add_argument("--models", type=Path, default=Path("models"), help="where the GGUF files are (make models-all)")
    parser.add_argument("--out", type=Path, default=Path("models/teachers"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for key in args.teachers or TEACHERS:
        source, name, noise = TEACHERS[key]
        target = args.out / name
        if target.exists():
            print(f"{target}: there already")
            continue
        if not (args.models / source).exists():
            sys.exit(f"{args.models / source}: found nothing, allowed is the file that make models-all fetches")
        write(args.models / source, target, noise)
        print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
