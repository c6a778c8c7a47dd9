#!/usr/bin/env python3
"""Writes src/text/unicode_additions.inc: what Unicode 15 and 16 assigned after Unicode 14.

PCRE2 10.42 knows Unicode 14 and utf8proc 2.8 Unicode 15, while the pattern engine of Hugging Face
tokenizers knows Unicode 16. Needs Python 3.11 (its unicodedata is Unicode 14) and unicodedata2==16.0.0.
"""
import pathlib
import unicodedata

import unicodedata2

assert unicodedata.unidata_version == "14.0.0" and unicodedata2.unidata_version == "16.0.0"
runs = []
for code_point in range(0x110000):
    if 0xD800 <= code_point < 0xE000:
        continue
    old, new = unicodedata.category(chr(code_point)), unicodedata2.category(chr(code_point))
    if old == new:
        continue
    if old != "Cn":
        print(f"U+{code_point:04X} changed from {old} to {new}: left as it was")
        continue
    if runs and runs[-1][1] == code_point - 1 and runs[-1][2] == new:
        runs[-1][1] = code_point
    else:
        runs.append([code_point, code_point, new])
lines = ["// Code points that Unicode 15 and 16 assigned: {first, last, general category}. Made by tools/unicode_additions.py."]
row = ""
for first, last, category in runs:
    item = f'{{0x{first:X}, 0x{last:X}, "{category}"}}, '
    if len(row) + len(item) > 110:
        lines.append(row.rstrip())
        row = ""
    row += item
lines.append(row.rstrip())
path = pathlib.Path(__file__).parent.parent / "src/text/unicode_additions.inc"
path.write_text("\n".join(lines) + "\n")
