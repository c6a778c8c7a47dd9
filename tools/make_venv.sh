#!/usr/bin/env bash
# The tests' own Python environment, made once and again whenever the pinned list changes.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/requirements.stamp
if [ -x .venv/bin/python ] && cmp -s tests/requirements.txt "$stamp"; then exit 0; fi
echo "==> Python environment .venv"
rm -rf .venv
python3 -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
cp tests/requirements.txt "$stamp"
