#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every entry point in the toolkit's headers is in exactly one of our LISTs, or it is named here.

    api_list.py ROOT CUDA_INCLUDE CC

A new toolkit brings new entry points; each must be read about and put where it belongs: shim/submit_list.h (it puts work on a
stream), shim/hook_list.h (we answer it) or shim/known_list.h (it submits nothing).
"""
import os
import re
import subprocess
import sys
import tempfile

HEADERS = ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"]

LISTS = """
#include "shim/submit_list.h"
#include "shim/known_list.h"
#define X(symbol, ...) ROW symbol END
#define K(symbol) ROW symbol END
CUP_EXPORT_LIST(X)
CUP_KNOWN_LIST(K)
"""


def exported_names(text):
    """The symbols that a header declares: as written, and what its macros make of them."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    declared = set(re.findall(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))
    names = set(declared)
    # Only 13.0's cudaGL.h and cudaVDPAU.h have names that are declared under a macro alone; cuda.h declares each twice.
    for name, suffix, target in re.findall(
            r"^[ \t]*#[ \t]*define[ \t]+(cu[A-Z]\w*)[ \t]+(?:__CUDA_API_(PTSZ|PTDS)\()?(cu[A-Z]\w*)", text, flags=re.M):
        if name in declared:
            names.add(target)
            if suffix:
                names.add(target + "_" + suffix.lower())
    return names


def listed_names(root, cc):
    """Rows of our LISTs, as often as they are there."""
    found = subprocess.run([cc, "-E", "-P", "-I", root, "-x", "c", "-"], input=LISTS, capture_output=True, text=True, check=True)
    return re.findall(r"ROW (\w+) END", found.stdout)


def findings(names, listed):
    for name in sorted(names - set(listed)):
        yield "nobody has classified " + name
    for name in sorted(set(n for n in listed if listed.count(n) > 1)):
        yield "in two LISTs: " + name


def read_headers(folder):
    names = set()
    for header in HEADERS:
        path = os.path.join(folder, header)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                names |= exported_names(file.read())
    return names


def self_test(listed):
    """What must be found, planted."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "cuda.h"), "w", encoding="utf-8") as file:
            file.write("#define cuInventedOne __CUDA_API_PTSZ(cuInventedOne_v2)\n"
                       "CUresult CUDAAPI\ncuInventedOne(CUstream hStream);\n/* CUresult CUDAAPI cuOnlyTalkedAbout(void); */\n"
                       "CUresult CUDAAPI cuInit(unsigned int Flags);\n")
        found = list(findings(read_headers(folder), listed))
    expected = ["nobody has classified " + n for n in ("cuInventedOne", "cuInventedOne_v2", "cuInventedOne_v2_ptsz")]
    if found != expected:
        yield "the lint is blind: it found %r in a planted header" % found
    if list(findings(set(), ["cuInit", "cuInit"])) != ["in two LISTs: cuInit"]:
        yield "the lint is blind: it did not find a name in two LISTs"


def main():
    root, include, cc = sys.argv[1:4]
    names, listed = read_headers(include), listed_names(root, cc)
    found = list(findings(names, listed)) + list(self_test(listed))
    if len(names) < 500 or len(listed) < 500:
        found.append("only %d names in the headers, %d rows in the LISTs" % (len(names), len(listed)))
    print("\n".join(found + ["%d names, %d rows, %d findings" % (len(names), len(listed), len(found))]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
