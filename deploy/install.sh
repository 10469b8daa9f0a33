#!/bin/sh
# install.sh WHEEL FOLDER: make a Python environment with the service, and compile what the wheel has no code for.
# That code goes to NUMBA_CACHE_DIR, or into the environment if that is not set.
set -eu
wheel=$1
folder=$2
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$wheel[serve,otel]"
"$folder/bin/windvane" compile
