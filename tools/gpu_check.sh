#!/usr/bin/env bash
# Builds what a GPU machine runs into build/gpu-check and, in one file, build/gpu-check.tar.gz, and runs it here where this machine has a GPU.
# ARCHS: its architectures. Plain 90 beside 90a lets a Hopper GPU run the kernels of both paths; 80 serves all of 8.x.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/gpu-check
cmake --preset portable -DQUINTET_CUDA=on -DQUINTET_CUDA_ARCHS="${ARCHS:-80;90;90a}" >/dev/null
cmake --build build/portable --target quintet quintet_cuda_tests -- -j"${JOBS:-$(nproc)}"
rm -rf "$out" && mkdir -p "$out"
strip -o "$out/quintet" build/portable/quintet
strip -o "$out/quintet_cuda_tests" build/portable/tests/cuda/quintet_cuda_tests
mkdir -p "$out/tests/golden/data/real"
cp tests/golden/data/real/smollm2.* "$out/tests/golden/data/real/"
cp -r tests/golden/data/tiny "$out/tests/golden/data/" && rm -f "$out"/tests/golden/data/tiny/*.gguf
cp tools/run_on_gpu.sh "$out/run-on-gpu.sh"
tar czf "$out.tar.gz" -C build gpu-check
du -sh "$out" "$out.tar.gz"
if nvidia-smi -L >/dev/null 2>&1; then
  exec "$out/run-on-gpu.sh" models
fi
echo "no GPU here: copy $out.tar.gz to a machine that has one and run ./run-on-gpu.sh in it there (CONTRIBUTING.md)"
