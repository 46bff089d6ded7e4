#!/usr/bin/env bash
# Runs every libFuzzer target of a build for some seconds each, from its corpus.
#
#   scripts/fuzz.sh BUILD_DIR SECONDS     the build: cmake --preset fuzz
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: scripts/fuzz.sh BUILD_DIR SECONDS" >&2; exit 2; }
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
found=0
for target in "$build"/bin/*_fuzzer; do
  [ -x "$target" ] || continue
  found=1
  name=$(basename "$target" _fuzzer)
  work="$build/fuzz/$name"
  mkdir -p "$work"
  # New inputs go to the build; the committed corpus is only read.
  if ! "$target" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="$work/" "$work" "tests/fuzz/corpus/$name" >"$work.log" 2>&1; then
    tail -n 40 "$work.log" >&2
    echo "fuzz.sh: $name failed" >&2
    exit 1
  fi
  echo "$name: $(grep -oE 'number_of_executed_units: *[0-9]+' "$work.log" | grep -oE '[0-9]+') executions, clean"
done
[ $found -eq 1 ] || { echo "fuzz.sh: no fuzz targets in $build/bin" >&2; exit 1; }
