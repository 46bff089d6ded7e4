#!/usr/bin/env bash
# Builds Rivulet into build/bin/, installing what is missing first.
#
#   scripts/build.sh [PRESET]     default: release; whatever the preset, the
#                                 programs are found in build/bin/
# Presets that leave the network out have no programs: cmake --preset builds them.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
case "$preset" in
  release | dev | asan | clang | fuzz) ;;
  *)
    echo "build.sh: preset $preset has no programs (allowed: release dev asan clang fuzz)" >&2
    exit 2
    ;;
esac
scripts/setup.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
cmake --build "build/$preset" --target programs
mkdir -p build/bin
for program in rivulet rivulet-controller rivulet-server rivulet-worker; do
  ln -sf "../$preset/bin/$program" "build/bin/$program"
done
