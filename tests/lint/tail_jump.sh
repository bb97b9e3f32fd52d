#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dlsym and dlvsym leave by a jump, so that the real one finds its caller by the return address (RTLD_NEXT).
#   tail_jump.sh LIBRARY CC
set -eu
. "$(dirname "$0")/lib.sh"
library=$1 cc=$2

# library, symbol: an indirect jump is there, an indirect call (or one of the real function by name) is not
check_jump() {
    objdump -d --no-show-raw-insn --disassemble="$2" "$1" | grep -E '^ +[0-9a-f]+:' >"$scratch/code" || true
    [ -s "$scratch/code" ] || say "$2 is not in $(basename "$1")"
    grep -qE '(notrack |bnd )?jmp +\*' "$scratch/code" || say "$2 has no indirect jump"
    grep -E 'call +\*|call .*<(dlsym|dlvsym|__libc_dlsym)' "$scratch/code" >"$scratch/bad" || true
    while read -r line; do
        say "$2 calls the real one: $line"
    done <"$scratch/bad"
}

for symbol in $(nm -D --defined-only "$library" | awk '{print $3}' | grep -xE 'dlv?sym'); do
    check_jump "$library" "$symbol"
    touch "$scratch/looked"
done
[ -e "$scratch/looked" ] || say "no dlsym is exported"

plant() {
    echo "void *(*real)(void *, const char *); int n; void *dlsym(void *h, const char *s) { $1 }" >"$scratch/p.c"
    "$cc" -shared -fPIC -O2 -w "$scratch/p.c" -o "$scratch/p.so"
}
plant 'void *p = real(h, s); n++; return p;'
must_find "a call in place of the jump" check_jump "$scratch/p.so" dlsym
plant 'return s[0] == 1 ? (void *)real : real(h, s);'
if [ "$(check_jump "$scratch/p.so" dlsym)" ]; then
    say "the lint is wrong: it refuses a jump"
fi
verdict
