#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mutants.sh ROOT [NAME…]: breaks each rule of mutants.list in turn, in a copy of the tree, and runs the tests that are to
# find it, until one does. One line each, with the cases that failed. Exit 1 when a mutant survives, does not apply any
# more, does not build or is not in docs/mutants.md, or a test fails without one. MUTANTS_VERBOSE=1: all that the test
# said.
set -u
root=$(cd "$1" && pwd) || exit 1
shift
list=$root/tests/mutants/mutants.list
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
build=$dir/build
TARGETS=(cupola test_order test_order_moments preload_order preload_cases preload_peer preload_ipc preload_ipc_guard preload_ipc_rough preload_named_guard gpu_debts wrong_shim test_growth preload_doors)

copy_tree() {
    (cd "$root" && tar cf - --exclude='./build*' --exclude=./.git .) | (cd "$dir" && tar xf -)
    mkdir "$dir/sound" && cp -r "$dir/shim" "$dir/allocator" "$dir/sound"
}

make_all() {
    ninja -C "$build" -j2 "${TARGETS[@]}" >"$dir/build.log" 2>&1
}

run_test() { # NAME
    ctest --test-dir "$build" --no-tests=error --output-on-failure -R "^$1\$" >"$dir/test.log" 2>&1
}

# Of the last test: the names that it gives its cases.
failed_cases() {
    sed -nE -e 's/^\[FAIL\] [a-z_]+::([a-z_]+).*/\1/p' -e 's/.*FAILED [a-z_]+\/([a-z_]+)$/\1/p' \
        -e 's/^([a-z0-9-]+) .* WRONG$/\1/p' "$dir/test.log" |
        tr '\n' ' ' | sed 's/^/: /; s/ $//'
}

# One mutant of the list: rule, tests, and its hunks as arrays: file, old text, new text.
read_mutant() { # NAME
    local line state=seek
    rule='' tests='' file=() old=() new=()
    while IFS= read -r line; do
        case $state:$line in
        seek:"mutant $1") state=head ;;
        seek:*) ;;
        *:) return 0 ;;
        head:'rule '*) rule=${line#rule } ;;
        head:'tests '*) tests=${line#tests } ;;
        *:'@@ '*) state=hunk file+=("${line#@@ }") old+=('') new+=('') ;;
        hunk:-*) old[-1]+=${line:1}$'\n' ;;
        hunk:+*) new[-1]+=${line:1}$'\n' ;;
        hunk:' '*) old[-1]+=${line:1}$'\n' new[-1]+=${line:1}$'\n' ;;
        *) echo "mutants.list: $1: $line" >&2 && return 1 ;;
        esac
    done <"$list"
    [ $state = hunk ]
}

restore() {
    for path in "${file[@]}"; do
        cp "$dir/sound/$path" "$dir/$path"
    done
}

# Each old text must be there exactly once.
apply() {
    local i text rest from to
    for i in "${!file[@]}"; do
        from=$'\n'${old[$i]} to=$'\n'${new[$i]}
        text=$(cat "$dir/${file[$i]}" && echo .) && text=${text%.}
        rest=${text#*"$from"}
        [ "$rest" != "$text" ] && [ "${rest#*"$from"}" = "$rest" ] || return 1
        printf '%s' "${text/"$from"/"$to"}" >"$dir/${file[$i]}"
    done
}

# Sets verdict.
try() { # NAME
    read_mutant "$1" || { verdict='NOT READABLE'; return; }
    grep -q "^| \`$1\` |" "$root/docs/mutants.md" || { verdict='NOT IN docs/mutants.md'; return; }
    apply || { verdict='DOES NOT APPLY'; return; }
    make_all || { verdict='DOES NOT BUILD'; return; }
    for test in $tests; do
        if ! run_test "$test"; then
            verdict="killed by $test$(failed_cases)"
            [ -z "${MUTANTS_VERBOSE:-}" ] || cat "$dir/test.log"
            return
        fi
    done
    verdict='SURVIVES'
}

copy_tree
cmake -S "$dir" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$dir/build.log" 2>&1 && make_all ||
    { tail -n 30 "$dir/build.log"; exit 1; }
mapfile -t names < <(sed -n 's/^mutant //p' "$list")
if [ $# -gt 0 ]; then
    names=("$@")
else
    for test in $(sed -n 's/^tests //p' "$list" | tr ' ' '\n' | sort -u); do
        run_test "$test" || { cat "$dir/test.log"; echo "$test fails without a mutant"; exit 1; }
    done
fi

count=0 bad=0
for name in "${names[@]}"; do
    count=$((count + 1))
    try "$name"
    restore
    case $verdict in killed*) ;; *) bad=$((bad + 1)) ;; esac
    printf '%2d/%d %3ds  %-28s %s\n' "$count" "${#names[@]}" "$SECONDS" "$name" "$verdict"
done
echo "$count mutants, $((count - bad)) killed"
[ "$count" -gt 0 ] && [ "$bad" -eq 0 ]
