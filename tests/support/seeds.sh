#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# seeds.sh VARIABLE LAST COMMAND…: runs the command with VARIABLE=1 … LAST; stops at the first failure and names its seed.
set -u
variable=$1 last=$2
shift 2
seed=1
while [ "$seed" -le "$last" ]; do
    env "$variable=$seed" "$@" || {
        echo "failed with $variable=$seed"
        exit 1
    }
    seed=$((seed + 1))
done
