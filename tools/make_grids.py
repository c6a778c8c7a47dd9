"""Prints the tables of src/quant/grids.cpp from the grids that the PyPI package `gguf` documents.

Each grid is a set of points whose coordinates are digits (base 3 or 8, first coordinate lowest). The files number
the points in ascending order, so the gaps between neighbours are the whole table. IQ2 points have even digit sums
(they are points of the E8 lattice), hence even gaps: those are stored halved and fit a byte.
"""
import numpy as np
from gguf import quants

for name in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"):
    codec = getattr(quants, name)
    codec.init_grid()
    levels = np.array(codec.grid_map)
    digits = np.searchsorted(levels, codec.grid.reshape(codec.grid_shape).astype(int))
    numbers = (digits * len(levels) ** np.arange(digits.shape[1])).sum(axis=1)
    gaps = np.diff(numbers, prepend=0)
    unit = 2 if name.startswith("IQ2") else 1
    assert (gaps[1:] > 0).all() and (gaps % unit == 0).all() and (gaps // unit < 256).all()
    gaps = gaps // unit
    print(f"constexpr std::array<uint8_t, {len(gaps)}> k{name.title().replace('_', '')}Gaps = {{")
    line = "   "
    for gap in gaps:
        if len(line) + len(f" {gap},") > 118:
            print(line)
            line = "   "
        line += f" {gap},"
    print(line + "\n};\n")
