#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds and tests everything that needs no GPU. A second run builds only what changed, and a stage that passed
# on these very files is not run again: it says so, with its counts.
#   ./test.sh                  all stages: release, asan, tsan, fuzz, lint
#   ./test.sh --again          whatever passed before
#   ./test.sh --only STAGE     one of them
#   ./test.sh --long           the long tests, too
#   ./test.sh --gpu            the tests on real hardware, too (skipped where there is none)
# Ends with "N passed, N failed, N skipped", summed over all runs of ctest; exit code 1 if anything failed.
set -euo pipefail
cd "$(dirname "$0")"

only=""
again=0
long=0
gpu=0
jobs=$(nproc)
total_passed=0
total_failed=0
total_skipped=0
all_start=$SECONDS

usage() {
    sed -n '3,10p' "$0" | sed 's/^# \{0,1\}//'
}

while [ $# -gt 0 ]; do
    case $1 in
    --only)
        only=${2:-}
        shift
        case $only in
        release | asan | tsan | fuzz | lint) ;;
        *)
            usage >&2
            exit 2
            ;;
        esac
        ;;
    --again) again=1 ;;
    --long) long=1 ;;
    --gpu) gpu=1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done

# ---- what must be installed -------------------------------------------------------------------

has_any() {
    local file
    for file in "$@"; do
        if [ -e "$file" ]; then
            return 0
        fi
    done
    return 1
}

# Debian's names; one package a line for each thing that is not there
missing_packages() {
    command -v cmake >/dev/null || echo cmake
    command -v ninja >/dev/null || echo ninja-build
    command -v gcc >/dev/null || echo gcc
    command -v g++ >/dev/null || echo g++
    command -v objcopy >/dev/null || echo binutils
    command -v xz >/dev/null || echo xz-utils
    has_any /usr/include/stdlib.h || echo libc6-dev
    has_any /usr/include/criterion/criterion.h || echo libcriterion-dev
    has_any /usr/lib/*/libjemalloc_pic.a || echo libjemalloc-dev
    has_any /usr/include/cjson/cJSON.h || echo libcjson-dev
    missing_optional
}

# without these a stage has less to do, and says so
missing_optional() {
    command -v clang >/dev/null || echo clang
    command -v clang-format >/dev/null || echo clang-format
    command -v clang-tidy >/dev/null || echo clang-tidy
    has_any /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a || echo libclang-rt-dev
}

install_missing() {
    local packages as_root=""
    packages=$(missing_packages | tr '\n' ' ')
    if [ -z "$packages" ]; then
        return 0
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "missing, and there is no root here to install it: apt-get install $packages"
            return 0
        fi
        as_root=sudo
    fi
    echo "installing: $packages"
    $as_root apt-get update -qq >/dev/null || true
    # shellcheck disable=SC2086
    if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null; then
        echo "could not install all of: $packages"
    fi
}

require_tools() {
    local required
    install_missing
    required=$(comm -23 <(missing_packages | sort) <(missing_optional | sort) | tr '\n' ' ')
    if [ -n "$required" ]; then
        echo "cannot build without: apt-get install $required" >&2
        exit 1
    fi
    if ! has_any "${CUDA_HOME:-/nonexistent}/include/cuda.h" "${CUDA_PATH:-/nonexistent}/include/cuda.h" \
        /usr/local/cuda/include/cuda.h; then
        cat >&2 <<'TEXT'
cannot build without the CUDA headers (cuda.h, 13.0; no GPU and no driver needed). Any of these gives them:
  the CUDA toolkit, https://developer.nvidia.com/cuda-downloads
  from NVIDIA's package repository alone: apt-get install cuda-cudart-dev-13-0 cuda-driver-dev-13-0
If they are elsewhere, set CUDA_HOME to the folder that holds include/cuda.h.
TEXT
        exit 1
    fi
}

# ---- stages -----------------------------------------------------------------------------------

# one line a stage: name, seconds, counts
report() {
    printf '%-8s %4d s   %d passed, %d failed, %d skipped\n' "$1" "$2" "$3" "$4" "$5"
    total_passed=$((total_passed + $3))
    total_failed=$((total_failed + $4))
    total_skipped=$((total_skipped + $5))
}

# preset, folder. With --long the programs of bench/ and tests/gpu/ run under ASan, too, on the software driver.
configure() {
    local -a options=()
    if [ "$1" = asan ]; then
        [ "$long" -eq 0 ] || options=(-DCUPOLA_BENCH=ON -DCUPOLA_NVCC=OFF)
    elif [ -f "$2/build.ninja" ]; then
        return 0
    fi
    cmake --preset "$1" "${options[@]}"
}

# preset, folder, target: configures when needed, builds what changed; output only when it fails
build() {
    local preset=$1 folder=$2 target=$3 log=$2/test-build.log
    mkdir -p "$folder"
    if configure "$preset" "$folder" >"$log" 2>&1 &&
        ninja -C "$folder" -j "$jobs" "$target" >>"$log" 2>&1; then
        return 0
    fi
    tail -n 60 "$log"
    echo "$preset does not build; all of it: $log"
    return 1
}

# the testsuite element of CTest's JUnit file spans lines
suite_count() {
    tr '\n\t' '  ' <"$1" | grep -o '<testsuite [^>]*' | sed -n "s/.* $2=\"\([0-9]*\)\".*/\1/p"
}

# stage, folder, then ctest's selection: runs, adds up, shows what failed
run_tests() {
    local stage=$1 folder=$2 start=$SECONDS code=0 tests failed skipped
    shift 2
    local junit=$PWD/$folder/test-$stage.xml log=$folder/test-$stage.log
    rm -f "$junit"
    ctest --test-dir "$folder" -j "$jobs" --output-on-failure --output-junit "$junit" "$@" >"$log" 2>&1 || code=$?
    if grep -q 'No tests were found' "$log"; then
        printf '%-8s %4d s   no tests of this kind\n' "$stage" "$((SECONDS - start))"
        return 0
    fi
    tests=$(suite_count "$junit" tests 2>/dev/null || true)
    if [ -z "$tests" ]; then
        tail -n 20 "$log"
        report "$stage" "$((SECONDS - start))" 0 1 0
        return 0
    fi
    failed=$(suite_count "$junit" failures)
    skipped=$(($(suite_count "$junit" skipped) + $(suite_count "$junit" disabled)))
    if [ "$code" -ne 0 ]; then
        grep -vE '^ +Start +[0-9]+:|   Passed  ' "$log" | tail -n 100
        echo "all of it: $log"
        # a program that could not start is "skipped" to JUnit; to us it failed
        local not_run
        not_run=$(grep -c '\*\*\*Not Run' "$log" || true)
        failed=$((failed + not_run))
        skipped=$((skipped - not_run))
        if [ "$failed" -eq 0 ]; then
            failed=1
            tests=$((tests + 1))
        fi
    fi
    report "$stage" "$((SECONDS - start))" "$((tests - failed - skipped))" "$failed" "$skipped"
}

# stage, preset, folder, target (all): a build that counts as one failure when it breaks
build_or_fail() {
    local start=$SECONDS
    if build "$2" "$3" "${4:-all}"; then
        printf '%-8s %4d s   built\n' "$1" "$((SECONDS - start))"
        return 0
    fi
    report "$1" "$((SECONDS - start))" 0 1 0
    return 1
}

# what the quick stages leave out
left_out() {
    if [ "$long" -eq 1 ]; then
        echo 'lint|gpu|fuzz'
    else
        echo 'lint|gpu|fuzz|long'
    fi
}

stage_release() {
    if build_or_fail release release build; then
        run_tests release build -LE "$(left_out)"
    fi
}

stage_asan() {
    if build_or_fail asan asan build-asan; then
        run_tests asan build-asan -LE "$(left_out)"
    fi
}

stage_tsan() {
    if build_or_fail tsan tsan build-tsan; then
        run_tests tsan build-tsan -LE "$(left_out)"
    fi
}

# clang's libFuzzer; CUPOLA_FUZZ_SECONDS of the preset says how long each target runs
stage_fuzz() {
    if ! command -v clang >/dev/null; then
        echo "fuzz: no clang"
        report fuzz 0 0 0 1
        return 0
    fi
    if build_or_fail fuzz fuzz build-fuzz fuzz; then
        run_tests fuzz build-fuzz -L fuzz
    fi
}

stage_lint() {
    if build_or_fail lint release build; then
        run_tests lint build -L lint
    fi
}

stage_gpu() {
    if build_or_fail gpu release build; then
        run_tests gpu build -L gpu -j 1
    fi
}

# ---- what passed on the same files already ----------------------------------------------------

# every file of the tree, the compiler, and what the tests take from the environment
tree_key() {
    {
        find . \( -path './build*' -o -path ./.git -o -name __pycache__ \) -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
        gcc --version
        env | grep -E '^(CUPOLA_|CUP_|SOFTCUDA_|CC=|CFLAGS=)' | sort || true
        echo "long $long"
    } | sha256sum | cut -d' ' -f1
}

# stage: runs it, or says that nothing has changed since it passed
run_stage() {
    local stage=$1 folder=build file before_passed=$total_passed before_skipped=$total_skipped key_then passed skipped when
    case $stage in asan | tsan | fuzz) folder=build-$stage ;; esac
    file=$folder/.passed-$stage
    if [ "$again" -eq 0 ] && [ -f "$file" ]; then
        read -r key_then passed skipped when <"$file"
        if [ "$key_then" = "$key" ]; then
            printf '%-8s    - s   %d passed, 0 failed, %d skipped   (on these files, %s; --again runs it)\n' \
                "$stage" "$passed" "$skipped" "$when"
            total_passed=$((total_passed + passed))
            total_skipped=$((total_skipped + skipped))
            return 0
        fi
    fi
    rm -f "$file"
    local failed_before=$total_failed
    "stage_$stage"
    if [ "$total_failed" -eq "$failed_before" ]; then
        echo "$key $((total_passed - before_passed)) $((total_skipped - before_skipped)) $(date '+%F %R')" >"$file"
    fi
}

require_tools
key=$(tree_key)
for stage in release asan tsan fuzz lint; do
    if [ -z "$only" ] || [ "$only" = "$stage" ]; then
        run_stage "$stage"
    fi
done
if [ "$gpu" -eq 1 ]; then
    stage_gpu
fi
printf '%-8s %4d s\n' all "$((SECONDS - all_start))"
echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
[ "$total_failed" -eq 0 ]
