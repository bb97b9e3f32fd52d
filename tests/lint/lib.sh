# SPDX-License-Identifier: Apache-2.0
# Sourced by every lint script: a scratch folder, a verdict, and the proof that a check can fail.
#   say TEXT            reports one finding
#   must_find TEXT CMD  runs CMD in a subshell on something planted; no finding there is a failure of the lint itself
#   verdict             ends the script: 1 if anything was said
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
findings=$scratch/findings
: >"$findings"

say() {
    echo "$*" | tee -a "$findings"
}

must_find() {
    what=$1
    shift
    planted=$scratch/planted_findings
    : >"$planted"
    (findings=$planted && "$@") >/dev/null 2>&1 || true
    [ -s "$planted" ] || say "the lint is blind: it did not find $what"
}

verdict() {
    if [ -s "$findings" ]; then
        echo "$(wc -l <"$findings") findings"
        exit 1
    fi
    exit 0
}

# The text files of a tree: what git knows or would add; everything but build folders where there is no git.
tree_files() {
    if git -C "$1" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        (cd "$1" && git ls-files --cached --others --exclude-standard) | while read -r file; do
            [ -f "$1/$file" ] && echo "$file"
        done
    else
        (cd "$1" && find . -path './build*' -prune -o -path ./.git -prune -o -type f -print | sed 's:^\./::')
    fi
}
