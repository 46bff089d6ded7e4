#!/usr/bin/env bash
# ResNet-20's training speed on this machine beside PyTorch's, in turns, so that
# what else the machine does meets both.
#
#   scripts/experiments/bench_model.sh [ROUNDS]     default: 5
#
# Needs Debian's python3-torch. Prints a line a round, in images/s, then the
# medians and the ratios.
set -euo pipefail
self=$(readlink -f "$0")
cd "$(dirname "$self")/../.."
case "${1:-}" in -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$self"; exit ;; esac
rounds=${1:-5}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "bench_model.sh: ROUNDS is $rounds (allowed: 1 or more)" >&2; exit 2; }
python=/usr/bin/python3
"$python" -c 'import torch' 2>/dev/null || { echo "bench_model.sh: python3-torch is needed" >&2; exit 2; }
scripts/build.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# PyTorch at its best: AVX-512, no returning of memory, and threads that spin
# where there are several.
torch() {
  local threads=$1; shift
  local policy=passive; [ "$threads" = 1 ] || policy=active
  ATEN_CPU_CAPABILITY=avx512 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 \
    MALLOC_TOP_PAD_=268435456 OMP_NUM_THREADS=$threads OMP_WAIT_POLICY=$policy \
    "$python" scripts/experiments/torch_resnet20.py --threads "$threads" "$@"
}

for ((round = 1; round <= rounds; ++round)); do
  for threads in 1 2; do
    build/bin/rivulet bench model resnet20 --threads "$threads" --json "$work/ours.json" >/dev/null
    default=$(torch "$threads")
    channels_last=$(torch "$threads" --channels-last)
    "$python" - "$threads" "$default" "$channels_last" "$work/ours.json" >>"$work/rows" <<'PY'
import json
import sys
threads, default, channels_last, path = sys.argv[1:]
run = json.load(open(path))["runs"][0]
print(threads, run["images_per_second"], run["conv_only_images_per_second"], default, channels_last)
PY
    tail -n 1 "$work/rows" | awk '{printf "threads %d: rivulet %.0f, convolutions alone %.0f, torch %.0f, channels_last %.0f\n", $1, $2, $3, $4, $5}'
  done
done
"$python" - "$work/rows" <<'PY'
import statistics
import sys
rows = [[float(x) for x in line.split()] for line in open(sys.argv[1])]
for threads in (1, 2):
    ours, bound, default, last = (statistics.median(r[i] for r in rows if r[0] == threads) for i in (1, 2, 3, 4))
    ratios = [statistics.median(r[1] / r[i] for r in rows if r[0] == threads) for i in (2, 3, 4)]
    print(f"median, {threads} thread{'s' if threads > 1 else ''}: rivulet {ours:.0f} images/s = {ratios[1]:.2f} x torch ({default:.0f}), "
          f"{ratios[2]:.2f} x channels_last ({last:.0f}), {ratios[0]:.2f} of convolutions alone ({bound:.0f})")
PY
