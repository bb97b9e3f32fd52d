#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# reports.sh BUILD: the programs of tests/reports (docs/reports.md), each natively and under the preload, raw and vmm: the same
# output, and by counters the pool's (tests/hosts/host.sh). Some at once; those that go by free memory, or take much of it, alone.
# Last ranks, which shows what is not built: processes that peak one after the other, and what each keeps. A line each; what fails
# is shown whole. Exit 77 without a driver.
set -u
build=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

report() { # BACKING PROGRAM FLAGS ENVIRONMENT CASE…
    local backing=$1 program=$2 flags=$3 environment=$4 name out
    shift 4
    name="$program $*, $backing${environment:+, $environment}"
    out=$dir/${name//[ \/]/.}
    # shellcheck disable=SC2086
    timeout 60 env CUPOLA_BACKING="$backing" $environment \
        "$here/../hosts/host.sh" $flags "$build/libcupola.so" "$build/tests/reports/report_$program" "$@" >"$out" 2>&1
    case $? in
    0) echo "ok $name: $(tail -n 1 "$out")" ;;
    77) echo "absent $name: $(tail -n 1 "$out")" ;;
    *) echo "FAILED $name: $(head -n 40 "$out")" ;;
    esac | tee "$out.verdict"
}

goes_alone() { # PROGRAM CASE
    case "$1 $2" in
    memory* | shared* | "sizes big_kept" | "sizes creeping_far") return 0 ;;
    *) return 1 ;;
    esac
}

rows() { # alone, or beside
    local program flags environment case backing
    while IFS='|' read -r program flags environment case; do
        if goes_alone "$program" "$case"; then [ "$1" = alone ]; else [ "$1" = beside ]; fi || continue
        [ "$flags" != - ] || flags=
        [ "$environment" != - ] || environment=
        for backing in raw vmm; do
            while [ "$1" = beside ] && [ "$(jobs -rp | wc -l)" -ge "${REPORTS_JOBS:-8}" ]; do wait -n; done
            # shellcheck disable=SC2086
            report "$backing" "$program" "$flags" "$environment" $case &
            [ "$1" = beside ] || wait
        done
    done <"$build/tests/reports/reports.rows"
    wait
}

rows beside
rows alone
for backing in native raw vmm; do
    preload=
    [ "$backing" = native ] || preload=$build/libcupola.so
    CUPOLA_BACKING=${backing/native/raw} LD_PRELOAD=$preload timeout 60 "$build/tests/reports/report_ranks" 2>&1 |
        sed "s/^/ranks, $backing: /"
done
cat "$dir"/*.verdict >"$dir/all"
echo "reports: $(grep -c '^ok' "$dir/all") passed, $(grep -c '^FAILED' "$dir/all") failed, $(grep -c '^absent' "$dir/all") absent"
grep -q '^ok' "$dir/all" || exit 77
! grep -q '^FAILED' "$dir/all"
