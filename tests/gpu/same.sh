#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# same.sh PROGRAM EXPECTED: the program's output, but for lines that begin with "probe", is the kept one.
set -u
got=$("$1") || exit $?
printf '%s\n' "$got" | grep -v '^probe' >"${TMPDIR:-/tmp}/same.$$"
grep -v '^probe' "$2" | diff - "${TMPDIR:-/tmp}/same.$$"
code=$?
rm -f "${TMPDIR:-/tmp}/same.$$"
exit $code
