#!/usr/bin/env bash
# A Python environment of the tests' own, made once and again whenever its pinned list changes.
# usage: make_venv.sh [FOLDER [REQUIREMENTS]]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-.venv} requirements=${2:-tests/requirements.txt}
stamp=$folder/requirements.stamp
if [ -x "$folder/bin/python" ] && cmp -s "$requirements" "$stamp"; then exit 0; fi
echo "==> Python environment $folder"
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
cp "$requirements" "$stamp"
