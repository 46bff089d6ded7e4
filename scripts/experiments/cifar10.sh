#!/usr/bin/env bash
# ResNet-20 on CIFAR-10 with 4 workers and a global batch of 128: dense against
# compressed, paired by seed (same initial weights, data order, augmentation).
#
#   scripts/experiments/cifar10.sh --data DIR [--seed N] [--epochs N] [--out DIR]
#                                  [--arms "dense dgc"] [--csv FILE]
#
# DIR holds CIFAR-10's binary files (cifar-10-batches-bin). An arm that has
# finished is not run again; one that was interrupted is resumed. Each finished
# arm adds a line to FILE, unless it ended in the same bits as one that is there,
# and the table is printed at the end.
set -euo pipefail
self=$(readlink -f "$0")
cd "$(dirname "$self")/../.."

data='' seed=1 epochs=30 out=runs/experiments/cifar10 arms="dense dgc" csv=docs/results/cifar10.csv
while [ $# -gt 0 ]; do
  case "$1" in -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$self"; exit ;; esac
  [ $# -ge 2 ] || { echo "cifar10.sh: $1 needs a value" >&2; exit 2; }
  case "$1" in
    --data) data=$2 ;;
    --seed) seed=$2 ;;
    --epochs) epochs=$2 ;;
    --out) out=$2 ;;
    --arms) arms=$2 ;;
    --csv) csv=$2 ;;
    *) echo "cifar10.sh: unknown argument $1 (allowed: --data --seed --epochs --out --arms --csv)" >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$data" ] || { echo "cifar10.sh: --data DIR is needed" >&2; exit 2; }

command -v python3 >/dev/null || { echo "cifar10.sh: python3 is needed to read summaries" >&2; exit 2; }
scripts/build.sh
mkdir -p "$(dirname "$csv")"
[ -s "$csv" ] || echo "arm,seed,epochs,test_accuracy,train_loss,bytes_up,bytes_down,ratio,ratio_steady_up,seconds,samples_per_second,weights_sha256,host" >"$csv"

for arm in $arms; do
  case "$arm" in
    dense) config=configs/cifar10_resnet20_dense.yaml ;;
    dgc) config=configs/cifar10_resnet20.yaml ;;
    *) echo "cifar10.sh: unknown arm $arm (allowed: dense dgc)" >&2; exit 2 ;;
  esac
  run="$out/$arm-seed$seed-epochs$epochs"
  if grep -qs '"status": *"complete"' "$run/summary.json"; then
    echo "$run is complete"
  else
    resume=()
    [ -d "$run/checkpoints" ] && resume=(--resume)
    build/bin/rivulet train "$config" --run-dir "$run" "${resume[@]}" \
      --set "data.path=$data" --set "train.seed=$seed" --set "train.epochs=$epochs"
  fi
  python3 - "$arm" "$epochs" "$run/summary.json" "$csv" <<'PY'
import json
import sys
arm, epochs, path, table = sys.argv[1:]
s = json.load(open(path))
if s["weights_sha256"] in open(table).read():
    sys.exit()  # has its line
line = ",".join(str(x) for x in [
    arm, s["seed"], epochs, s["test_accuracy"], s["train_loss"], s["bytes_up"],
    s["bytes_down"], s["ratio"], s["ratio_steady_up"], s["seconds"], s["samples_per_second"],
    s["weights_sha256"], s["host"].replace(",", "")])
with open(table, "a") as out:
    print(line, file=out)
PY
done
cat "$csv"
