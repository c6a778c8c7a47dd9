#!/usr/bin/env python3
"""Makes the golden data under tests/golden/data. Needs torch, transformers, safetensors, gguf, tokenizers and numpy.

    python tools/make_golden.py tiny          random models of each architecture, with logits
    python tools/make_golden.py real MODELS   logits and greedy continuations of the real models in the folder MODELS

The logits come from Transformers in FP32 with weights that the files hold exactly. `noise` beside them is what FP32
itself is unsure about: the largest difference to the same network with every product, sum and softmax in FP64.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from golden import real, tiny  # noqa: E402

DATA = Path(__file__).resolve().parent.parent / "tests" / "golden" / "data"

if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "tiny" and len(sys.argv) == 2:
        tiny.make_all(DATA / "tiny")
    elif what == "real" and len(sys.argv) == 3:
        real.make_all(Path(sys.argv[2]), DATA / "real")
    else:
        sys.exit(__doc__)
