#!/usr/bin/env bash
# From a clone to a trained network: installs what is missing, builds, trains a
# ResNet on Fashion-MNIST with 2 workers, 2 shards and a controller, compressed
# both ways, and shows the result.
#
#   scripts/quickstart.sh [RUN_DIR]     default: runs/quickstart
set -euo pipefail
cd "$(dirname "$0")/.."
run_dir=${1:-runs/quickstart}
run_dir=${run_dir%/}
scripts/build.sh
if [ -e "$run_dir/summary.json" ] || [ -e "$run_dir/checkpoints" ]; then
  if [ -e "$run_dir/lock" ] && ! flock --nonblock "$run_dir/lock" true; then
    echo "quickstart.sh: a run in $run_dir is going on; stop it, or name another folder" >&2
    exit 5
  fi
  # Keep what an earlier quick start left.
  previous="$run_dir.$(date +%Y%m%d-%H%M%S)"
  mv "$run_dir" "$previous"
  echo "moved the previous run to $previous"
fi
build/bin/rivulet train configs/quickstart.yaml --run-dir "$run_dir"
cat <<NEXT

next
  build/bin/rivulet eval $run_dir                       evaluate the weights again
  build/bin/rivulet check configs/cifar10_resnet20.yaml what another config would do
  build/bin/rivulet train configs/quickstart.yaml --run-dir runs/sparser \\
    --set train.epochs=6 --set compression.density=0.005
  docs/configuration.md                                 every key
NEXT
