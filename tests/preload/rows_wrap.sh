#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rows_wrap.sh CC ROOT OUT: writes the linker's options that wrap the route of every row of the LISTs (rows_witness.c).
set -eu
printf '#include "shim/submit_list.h"\n#define X(symbol, ...) --wrap=cup_route_ ## symbol\nCUP_EXPORT_LIST(X)\n' |
    "$1" -E -P -I "$2" - | grep -o -e '--wrap= *cup_route_[A-Za-z0-9_]*' | tr -d ' ' >"$3.new"
[ "$(wc -l <"$3.new")" -gt 200 ]
mv "$3.new" "$3"
