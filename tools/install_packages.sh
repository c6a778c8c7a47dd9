#!/usr/bin/env bash
# Installs the Debian packages that are missing, and says which. usage: install_packages.sh build [fuzz] [lint]
set -euo pipefail
declare -A groups=(
  [build]="g++ make cmake ninja-build ccache pkg-config git ca-certificates python3 python3-venv python3-pip
           libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libboost1.81-dev libssl-dev libpcre2-dev
           libutf8proc-dev libhwy-dev libgtest-dev libgmock-dev libbenchmark-dev"
  [fuzz]="clang-14 llvm-14 libclang-rt-14-dev"
  [lint]="clang-format clang-tidy"
)
wanted=()
for group in "$@"; do read -r -d '' -a names <<<"${groups[$group]}" || true; wanted+=("${names[@]}"); done
missing=()
if command -v dpkg-query >/dev/null; then
  have=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null | awk '$2=="installed"{print $1}')
  for name in "${wanted[@]}"; do grep -qx "$name" <<<"$have" || missing+=("$name"); done
else
  echo "not a Debian system: please see that these are installed: ${wanted[*]}" >&2
  exit 0
fi
[ ${#missing[@]} -eq 0 ] && exit 0
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "missing packages: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2; exit 2; }
  as_root=(sudo)
fi
echo "==> install ${missing[*]}"
# A container's lists are often empty or old: look them up anew once.
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
