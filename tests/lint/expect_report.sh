#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A planted bug: passes only if PROGRAM fails and its report contains TEXT.      expect_report.sh TEXT PROGRAM
# The report itself is not shown: the word in it fails a CTest.
set -u
text=$1
program=$2
report=$(mktemp)
trap 'rm -f "$report"' EXIT
"$program" >/dev/null 2>"$report"
code=$?
if [ "$code" -eq 0 ]; then
    echo "$(basename "$program") ended with 0: this preset sees nothing"
    exit 1
fi
if ! grep -q "$text" "$report"; then
    echo "$(basename "$program") ended with $code, but without '$text' in its report"
    exit 1
fi
