#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes point down only, and each header compiles alone.      layers.sh ROOT LAYERS CUDA_INCLUDE CC
# LAYERS is the build's folder of include walls.
set -eu
. "$(dirname "$0")/lib.sh"
root=$1 layers=$2 cuda=$3 cc=$4

# folder, then the extended regex of what may stand between the quotes
check_quotes() {
    grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$1"/*.[ch] /dev/null 2>/dev/null |
        grep -vE "\"($2)\"" >"$scratch/bad" || true
    while read -r line; do
        say "points up or sideways: $line"
    done <"$scratch/bad"
}

# folder, regex of <headers> that it may not include, and the one file that may
check_brackets() {
    grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*<($2)" "$1"/*.[ch] /dev/null 2>/dev/null |
        grep -v "^$1/$3:" >"$scratch/bad" || true
    while read -r line; do
        say "not for this layer: $line"
    done <"$scratch/bad"
}

check_tree() {
    check_quotes "$1/allocator" 'allocator/[a-z_]+\.h'
    check_quotes "$1/shim" '(allocator|shim)/[a-z_]+\.h'
    check_quotes "$1/preload" 'preload/[a-z_]+\.h|shim/(route|route_named|gate|hook_list|submit_list|known_list|interop_abi|cuda_abi)\.h'
    check_brackets "$1/allocator" 'cuda|cudaTypedefs|driver_types' none
    for folder in allocator shim preload; do
        check_brackets "$1/$folder" 'jemalloc' meta.c
    done
}

check_alone() {
    for header in "$1"/*.h; do
        [ -f "$header" ] || continue
        "$cc" -std=gnu11 -fsyntax-only -Wall -Werror -x c -I "$2" $3 "$header" 2>"$scratch/alone" ||
            say "does not compile alone: $header: $(head -n 3 "$scratch/alone")"
    done
}

check_tree "$root"
check_alone "$root/allocator" "$layers/allocator" ""
check_alone "$root/shim" "$layers/shim" "-I $layers/allocator -isystem $cuda"
check_alone "$root/preload" "$layers/preload" "-isystem $cuda"

plant=$scratch/tree
mkdir -p "$plant/allocator" "$plant/shim" "$plant/preload"
echo '#include "shim/log.h"' >"$plant/allocator/a.h"
must_find "an allocator/ that includes shim/" check_tree "$plant"
echo '#include <cuda.h>' >"$plant/allocator/a.h"
must_find "an allocator/ that includes CUDA" check_tree "$plant"
echo 'missing_t a;' >"$plant/allocator/a.h"
must_find "a header that does not compile alone" check_alone "$plant/allocator" "$plant" ""
rm "$plant/allocator/a.h"
echo '#include "preload/hook.h"' >"$plant/shim/s.c"
must_find "a shim/ that includes preload/" check_tree "$plant"
echo '#include <jemalloc/jemalloc.h>' >"$plant/shim/s.c"
must_find "a second user of jemalloc" check_tree "$plant"
rm "$plant/shim/s.c"
echo '#include "shim/order.h"' >"$plant/preload/p.c"
must_find "a preload/ that includes what it may not see" check_tree "$plant"
verdict
