#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh - from a clean clone to the before/after table: installs what is missing, builds build/, measures.
# With a working GPU it runs unmodified CUDA programs; without one, driver-level programs on the software driver.
# usage: ./demo.sh [arguments of bench/compare.py]      Exit code: compare.py's, or 1 when it could not be set up.
set -eu
cd "$(dirname "$0")"
log=build/demo.log

say() {
    printf '%s\n' "$*"
}

fail() {
    say "demo: $*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# ---- setting up --------------------------------------------------------------------------------------------------

# Debian packages behind what is not there.
missing_packages() {
    have cmake || printf 'cmake '
    have ninja || printf 'ninja-build '
    have python3 || printf 'python3 '
    { have cc && [ -e /usr/include/stdio.h ]; } || printf 'gcc libc6-dev '
    have objcopy || printf 'binutils '
    ls /usr/lib/*/libjemalloc_pic.a >/dev/null 2>&1 || printf 'libjemalloc-dev '
    [ -e /usr/include/cjson/cJSON.h ] || printf 'libcjson-dev '
}

# Installs packages if we may; silent, because what is still missing is said afterwards.
install() {
    have apt-get || return 0
    as_root=
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || return 0
        as_root='sudo -n'
    fi
    {
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ||
            { $as_root apt-get update &&
                $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }
    } >>"$log" 2>&1 </dev/null || true
}

# A folder that holds include/cuda.h: the toolkit's, or that of the Python packages of a PyTorch installation.
find_cuda_home() {
    for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/local/cuda-* /usr \
        $(python3 -c 'import glob, sys; print(*(h[:-15] for p in sys.path for h in glob.glob(p + "/nvidia/*/include/cuda.h")))'); do
        if [ -n "$home" ] && [ -e "$home/include/cuda.h" ]; then
            say "$home"
            return
        fi
    done
}

# ---- building ----------------------------------------------------------------------------------------------------

# True when build/ was made in another folder: a copy brought to this machine, which CMake would refuse.
is_build_foreign() {
    [ -e build/CMakeCache.txt ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" build/CMakeCache.txt
}

# Builds those of the named targets that this configuration has: without cJSON, say, there is no cupola command.
build() {
    ! is_build_foreign || rm -rf build/CMakeCache.txt build/CMakeFiles build/build.ninja
    if [ ! -e build/build.ninja ]; then
        say 'demo: configuring (release preset, build/)'
        cmake --preset release >>"$log" 2>&1 || fail_with_log 'cmake failed'
    fi
    known=$(cmake --build build --target help 2>>"$log") || fail_with_log 'the build failed'
    targets=
    for target in "$@"; do
        ! say "$known" | grep -q "^$target: phony" || targets="$targets $target"
    done
    say 'demo: building (about half a minute the first time)'
    # shellcheck disable=SC2086  # a list
    cmake --build build --target $targets >>"$log" 2>&1 || fail_with_log 'the build failed'
}

fail_with_log() {
    tail -n 20 "$log" >&2
    fail "$1; all of it is in $log"
}

set_up() {
    if is_build_foreign && [ -e build/libcupola.so ]; then
        say 'demo: build/ was made elsewhere and is used as it is (remove it to build here)'
        return
    fi
    packages=$(missing_packages)
    if [ -n "$packages" ]; then
        say "demo: installing $packages"
        # shellcheck disable=SC2086  # a list
        install $packages
        packages=$(missing_packages)
    fi
    cuda_home=$(find_cuda_home)
    if [ -n "$packages" ] || [ -z "$cuda_home" ]; then
        [ -z "$packages" ] || say "demo: missing, and not installable from here: $packages" >&2
        [ -n "$cuda_home" ] || say 'demo: missing: cuda.h 13.0 (no GPU needed): the CUDA toolkit, or only its packages' \
            'cuda-cudart-dev-13-0 and cuda-driver-dev-13-0; if it is elsewhere, set CUDA_HOME' >&2
        [ -e build/libcupola.so ] || exit 1
        say 'demo: going on with the build/ that is there'
        return
    fi
    CUDA_HOME=$cuda_home
    export CUDA_HOME
    build "$@"
}

# ---- the demo ----------------------------------------------------------------------------------------------------

mkdir -p build
: >"$log"
have python3 || install python3
have python3 || fail 'python3 is missing and could not be installed: apt-get install python3'
if device=$(timeout 120 python3 bench/probe.py); then
    say "cupola demo on the GPU: $device"
    targets='cupola cupola_tool bench'
else
    say "cupola demo on the software driver, times are simulated: $device"
    targets='cupola cupola_tool softcuda softcudart bench_driver'
fi

# shellcheck disable=SC2086  # a list
set_up $targets
say 'demo: measuring'
status=0
python3 bench/compare.py "$@" || status=$?

say ''
if [ -x build/bin/cupola ]; then
    say "next, a program of yours:  build/bin/cupola run CUPOLA_STATS=1 -- your-program"
else
    say "next, a program of yours:  CUPOLA_STATS=1 LD_PRELOAD=$PWD/build/libcupola.so your-program"
fi
exit $status
