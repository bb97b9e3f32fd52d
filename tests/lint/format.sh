#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-format decides layout. Skipped without version 14, whose opinion the tree has.      format.sh ROOT
set -eu
. "$(dirname "$0")/lib.sh"
root=$1
tool=$(command -v clang-format-14 || command -v clang-format || true)
case $([ -z "$tool" ] || "$tool" --version) in
*' 14.'*) ;;
*) echo "skipped: no clang-format 14" && exit 77 ;;
esac

check_file() {
    "$tool" --style="file:$root/.clang-format" --dry-run -Werror "$1" 2>"$scratch/bad" || say "$1: $(head -n 1 "$scratch/bad")"
}

cd "$root"
for file in $(tree_files "$root" | grep -E '\.[ch]$'); do
    check_file "$file"
done
echo 'int  f( void ){return 1;}' >"$scratch/p.c"
must_find "bad layout" check_file "$scratch/p.c"
verdict
