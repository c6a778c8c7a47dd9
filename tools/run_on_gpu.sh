#!/usr/bin/env bash
# Runs on the GPU machine, from the folder that `make gpu-check` filled: tests, compute-sanitizer on tiny models, benches, each
# with every set of kernels that the build has for this GPU.
# usage: run-on-gpu.sh [MODELS]    MODELS: the folder of SmolLM2-135M-Instruct.Q4_1.gguf
# QUICK=1: a tenth of the steps.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] && ln -sfn "$(realpath "$1")" "$here/models"
cd "$here"
export QUINTET_SOURCE=$here
failed=()
declare -A running
steps=256 && [ -n "${QUICK:-}" ] && steps=24
step() { printf '\n==> %s (after %s s)\n' "$1" "$SECONDS"; }
try() { local name=$1; shift; "$@" || failed+=("$name"); }

step "machine"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,memory.used --format=csv,noheader || exit 2
./quintet --version
paths=()
for path in hopper sm80; do
  if message=$(./quintet bench --device cuda --cuda-path $path --shape tiny --weights f16 --rows 1 --steps 1 --no-ceilings 2>&1 >/dev/null); then
    paths+=("$path")
  else
    echo "not on this GPU: $message"
  fi
done
[ ${#paths[@]} -gt 0 ] || exit 2

# Most of their time is the host's: all sets at once, then one after the other those that look at how much memory is free.
step "tests"
of_free_memory='CudaEngine.WhatDoesNotFit*:*LeaveNoMemoryBehind*'
for path in "${paths[@]}"; do
  QUINTET_CUDA_PATH=$path ./quintet_cuda_tests --gtest_brief=1 --gtest_filter="-$of_free_memory" >"tests-$path.log" 2>&1 &
  running[$path]=$!
done
for path in "${paths[@]}"; do
  try "tests $path" wait "${running[$path]}"
  echo "$path:" && grep -v '\[info\]' "tests-$path.log"
done
for path in "${paths[@]}"; do
  QUINTET_CUDA_PATH=$path try "tests $path" ./quintet_cuda_tests --gtest_brief=1 --gtest_filter="$of_free_memory"
done

step "compute-sanitizer"
if command -v compute-sanitizer >/dev/null; then
  # usage: check TOOL PATH WEIGHTS FLAGS...
  check() {
    compute-sanitizer --tool "$1" --error-exitcode 9 --log-file "sanitizer-$1-$2-$3.log" ./quintet bench --device cuda --cuda-path "$2" --shape tiny --weights "$3" \
      --eager --no-ceilings "${@:4}" >/dev/null
  }
  # These take 10 to 40 s each, of the host: all at once, beside the short ones. `splits`: enough of them that they are merged in shared memory.
  races=()
  race() {
    check racecheck "${@:2}" --for-racecheck --steps 1 &
    running[race $1]=$!
    races+=("$1")
  }
  for path in "${paths[@]}"; do
    if [ "$path" = hopper ]; then
      race "$path" "$path" int4-g128+outliers --rows 1,3,20 --context 100 --prompt 70
      race "$path splits" "$path" f16 --rows 64 --context 600 --layers 1
    else
      race "$path" "$path" int4-g128 --rows 3,20 --context 300 --prompt 70  # not of one row: docs/performance.md says why
    fi
  done
  for tool in memcheck initcheck; do
    for weights in int4-g128 int4-g128+outliers q4_0 q4_1 q8_0 f16 bf16 nf4; do
      [[ $tool == memcheck || $weights != bf16 ]] || continue  # the copies are those of f16
      for path in "${paths[@]}"; do
        [[ $path == "${paths[0]}" || $weights == int4-g128 || $weights == q4_1 ]] || continue
        try "$tool $weights $path" check $tool "$path" $weights --rows 1,3 --context 300 --prompt 70 --steps 2 --unfused
      done
    done
  done
  for name in "${races[@]}"; do try "racecheck $name" wait "${running[race $name]}"; done
else
  echo "not on the PATH: skipped"
fi

model=models/SmolLM2-135M-Instruct.Q4_1.gguf
if [ -e "$model" ]; then
  step "a real model"
  for path in "${paths[@]}"; do
    answer=$(./quintet run "$model" --device cuda --cuda-path "$path" -p "What is the capital of France?" -n 32)
    echo "$answer"
    [[ $answer == *Paris* ]] || failed+=("SmolLM2 does not name Paris on $path")
  done
fi

step "benches"
# cuBLAS is timed beside prompts where the loader finds it: the toolkit's, or that of a Python package.
cublas=$(find /usr/local /usr/lib /opt -name 'libcublas.so.1[23]' -printf '%h\n' 2>/dev/null | head -1)
export LD_LIBRARY_PATH=$cublas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
get() { sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p" <<<"$2"; }
bench() { try "bench $path $*" ./quintet bench --device cuda --cuda-path "$path" --json --steps "$steps" "$@" >>"$out"; }
for path in "${paths[@]}"; do
  out=bench-$path.jsonl
  : >"$out"
  # All of it on the path that this GPU takes by itself, what changes with the kernels on the other one.
  if [ "$path" = "${paths[0]}" ]; then
    bench --shape llama3-70b --weights int4-g128 --rows 1,2,4,8,16,32,64 --context 128,8192 --prompt 32,128,512,2048,8192 --attention
  else
    bench --shape llama3-70b --weights int4-g128 --rows 1,2,4,8,16,32,64 --context 128 --prompt 128,512,2048
  fi
  for weights in q4_0 q4_k q8_0; do bench --shape llama3-70b --layers 20 --weights "$weights" --rows 1,16; done
  [ "$path" = "${paths[0]}" ] && for weights in int4-g128+outliers int4-g128-asym nf4 int8 fp8 bf16; do bench --shape llama3-70b --layers 6 --weights "$weights" --rows 1,16; done
  bench --shape llama3-8b --weights f16 --rows 1,16
  bench --shape llama3-8b --weights int4-g128 --rows 1,16 --prompt 512 --unfused

  printf '\n%s kernels\n' "$path"
  printf '%-10s %-10s %5s %8s %10s %10s %9s %8s %7s %9s\n' work weights rows context ms tokens/s of-read TFLOP/s SM-MHz of-cuBLAS
  while IFS= read -r line; do
    if [[ $line == *'"ceilings"'* ]]; then
      read_ceiling=$(get read_bytes_per_s "$line")
      printf 'read ceiling %.3g B/s\n' "$read_ceiling"
      if [[ $line == *H200* ]] && awk "BEGIN { exit !($read_ceiling < 4.4e12) }"; then failed+=("void: the read ceiling is under 4.4 TB/s"); fi
    elif [[ $line == *'"skipped"'* ]]; then
      printf '%-10s %-10s %5s %8s skipped\n' "$(get work "$line")" "$(get weights "$line")" "$(get rows "$line")" "$(get context "$line")"
    else
      work=$(get work "$line")
      if [[ $line == *'"unfused"'* ]]; then work+='*'; fi  # nothing fused: beside the line above it
      of_vendor=$(get fraction_of_vendor "$line")
      printf '%-10s %-10s %5s %8s %10.3f %10.1f %8.1f%% %8.1f %7s %9s\n' "$work" "$(get weights "$line")" "$(get rows "$line")" \
        "$(get context "$line")" "$(get ms "$line")" "$(get tokens_per_s "$line")" "$(awk "BEGIN { print 100 * $(get fraction_of_read "$line") }")" \
        "$(get tflops "$line")" "$(get sm_mhz "$line")" "${of_vendor:+$(awk "BEGIN { printf \"%.1f%%\", 100 * $of_vendor }")}"
    fi
  done <"$out"
done

if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all passed in $SECONDS s"
