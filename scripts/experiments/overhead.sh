#!/usr/bin/env bash
# What the whole system costs over computing: samples a second of 2 workers on
# loopback (2 shards, a controller, both ways compressed to 0.1 %) against two
# processes side by side that only compute, in turns; means over all steps of
# both but the first ten or so (the first two of computing), in which code is
# generated and memory is touched.
#
#   scripts/experiments/overhead.sh --data DIR [--rounds N]     default: 3
#
# DIR holds CIFAR-10's binary files. Prints a line a round, then the median.
set -euo pipefail
self=$(readlink -f "$0")
cd "$(dirname "$self")/../.."
data='' rounds=3
while [ $# -gt 0 ]; do
  case "$1" in -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$self"; exit ;; esac
  [ $# -ge 2 ] || { echo "overhead.sh: $1 needs a value" >&2; exit 2; }
  case "$1" in
    --data) data=$2 ;;
    --rounds) rounds=$2 ;;
    *) echo "overhead.sh: unknown argument $1 (allowed: --data --rounds)" >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$data" ] || { echo "overhead.sh: --data DIR is needed" >&2; exit 2; }
command -v python3 >/dev/null || { echo "overhead.sh: python3 is needed to read results" >&2; exit 2; }
scripts/build.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compute() {
  local k
  for k in 0 1; do
    build/bin/rivulet bench model resnet20 --threads 1 --batch 64 --repetitions 50 --json "$work/$1$k.json" >/dev/null &
  done
  wait
}

for ((round = 1; round <= rounds; ++round)); do
  # Before and after, so that a machine that gets slower or faster meets both.
  compute before
  # The quick way to DGC's steady state: no warm-up, in the first steps of a run
  # that is long enough for its density.
  status=0
  timeout --preserve-status --kill-after=60 --signal=INT 60 \
    build/bin/rivulet train configs/cifar10_resnet20.yaml --run-dir "$work/run$round" \
    --set "data.path=$data" --set cluster.workers=2 --set train.max_steps=10000 \
    --set train.evaluate_every_epochs=0 --set compression.policy=fixed --set compression.density=0.001 \
    >"$work/log" 2>&1 || status=$?
  # Told to stop, it says so.
  [ "$status" = 130 ] || { cat "$work/log" >&2; exit 1; }
  compute after
  python3 - "$work" "$round" <<'PY' | tee -a "$work/rows"
import csv
import json
import sys
work, index = sys.argv[1:]
rates = [json.load(open(f"{work}/{when}{k}.json"))["runs"][0]["images_per_second_mean"] for when in ("before", "after") for k in (0, 1)]
computing = sum(rates) / 2
rows = [r for r in csv.DictReader(open(f"{work}/run{index}/metrics.csv")) if int(r["step"]) >= 10]
first, last = rows[0], rows[-1]
batch = 128  # of the config
system = batch * (int(last["step"]) - int(first["step"])) / (float(last["seconds"]) - float(first["seconds"]))
print(f"computing {computing:.0f} images/s, system {system:.0f}: {system / computing:.3f}")
PY
done
python3 - "$work/rows" <<'PY'
import statistics
import sys
print(f"median share: {statistics.median(float(line.split()[-1]) for line in open(sys.argv[1])):.3f}")
PY
