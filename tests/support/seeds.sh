#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# seeds.sh VARIABLE[,VARIABLE…] LAST COMMAND…: runs the command with the variables set to 1 … LAST; stops at the first
# failure and names its seed.
set -u
variables=$(echo "$1" | tr ',' ' ') last=$2
shift 2
seed=1
while [ "$seed" -le "$last" ]; do
    for variable in $variables; do
        export "$variable=$seed"
    done
    "$@" || {
        echo "failed with $variables = $seed"
        exit 1
    }
    seed=$((seed + 1))
done
