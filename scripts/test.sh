#!/usr/bin/env bash
# Installs what is missing, builds and runs every test. ctest's summary is the
# last thing it prints, and its exit code the verdict.
#
#   scripts/test.sh [PRESET] [ctest arguments]     default preset: release
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
if [ $# -gt 0 ] && [[ $1 != -* ]]; then preset=$1; shift; fi
scripts/setup.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
cmake --build "build/$preset"
ctest --test-dir "build/$preset" --output-on-failure -j "$(nproc)" "$@"
