#!/usr/bin/env bash
# Installs what building and testing Rivulet needs on Debian 12 (root, or a user
# with sudo). Idempotent and quiet; names what it could not get.
#
#   scripts/setup.sh           everything to build, run and test
#   scripts/setup.sh --lint    also clang, clang-format and clang-tidy
set -euo pipefail

packages=(
  build-essential ca-certificates ccache cmake ninja-build pkg-config
  dataset-fashion-mnist
  libabsl-dev libbenchmark-dev libcli11-dev libdnnl-dev libgmock-dev
  libgrpc++-dev libgtest-dev libhwy-dev libisal-dev libprotobuf-dev
  librandom123-dev libspdlog-dev libssl-dev libutfcpp-dev libyaml-cpp-dev
  nlohmann-json3-dev protobuf-compiler protobuf-compiler-grpc zlib1g-dev
)
for argument in "$@"; do
  case "$argument" in
    --lint) packages+=(clang-16 clang-format-16 clang-tidy-16 libclang-rt-16-dev libomp-16-dev) ;;
    *) echo "setup.sh: unknown argument '$argument' (allowed: --lint)" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ]; then sudo=()
elif command -v sudo >/dev/null; then sudo=(sudo)
else
  echo "setup.sh: needs root or sudo to install: ${missing[*]}" >&2
  exit 1
fi

echo "installing ${#missing[@]} packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${sudo[@]}" apt-get update -qq >"$log" 2>&1 || true
if ! "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
  # One bad name fails them all: try each by itself, to name the bad ones.
  failed=()
  for package in "${missing[@]}"; do
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "$package" >>"$log" 2>&1 || failed+=("$package")
  done
  if [ ${#failed[@]} -gt 0 ]; then
    tail -n 5 "$log" >&2
    echo "setup.sh: could not install: ${failed[*]}" >&2
    exit 1
  fi
fi
