#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# same.sh PROGRAM EXPECTED: the program's output, but for lines that begin with "probe", is the kept one. Without one: 77.
set -u
got=$("$1") || exit $?
[ -f "$2" ] || { echo "expected file missing: run on hardware"; exit 77; }
printf '%s\n' "$got" | grep -v '^probe' >"${TMPDIR:-/tmp}/same.$$"
grep -v '^probe' "$2" | diff - "${TMPDIR:-/tmp}/same.$$"
code=$?
rm -f "${TMPDIR:-/tmp}/same.$$"
exit $code
