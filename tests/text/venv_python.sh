#!/bin/sh
# Runs a Python test with the environment that `make test` makes, which may appear after the build was configured.
if [ -x .venv/bin/python ]; then exec .venv/bin/python "$@"; fi
exec python3 "$@"
